import numpy as np
import pytest
from hypothesis import strategies as st
from offbeat_core.compression import qsgd, random_k, sign, top_k

SHARES = st.floats(0, 1, exclude_min=True)


@pytest.fixture(scope="session")
def compressors() -> st.SearchStrategy:
    """Return a strategy for compressors of every kind, with any parameters."""
    return st.one_of(
        st.builds(top_k, SHARES),
        st.builds(random_k, SHARES, st.booleans()),
        st.builds(qsgd, st.integers(2, 16)),
        st.just(sign()),
    )


@pytest.fixture(scope="session")
def vectors() -> st.SearchStrategy:
    """Return a strategy for float32 vectors with ties, zeros of both signs, denormals and very different sizes."""
    few = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, 1.401298464324817e-45, -1.1754942106924411e-38])
    entry = st.one_of(few, st.floats(-(2.0**60), 2.0**60, width=32))
    return st.lists(entry, min_size=1, max_size=60).map(lambda entries: np.array(entries, np.float32))
