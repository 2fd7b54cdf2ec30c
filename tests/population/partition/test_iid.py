import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from offbeat.population.partition import iid


@given(st.integers(1, 60), st.data())
def test_sizes_differ_by_one_at_most(examples, data):
    clients = data.draw(st.integers(1, examples))
    sizes = [len(part) for part in iid(np.zeros(examples, np.int64), clients, data.draw(st.integers(0, 2**63 - 1)))]
    assert max(sizes) - min(sizes) <= 1
