import tracemalloc

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from offbeat.data.builtin.standardise import standardise


@given(
    pictures=hnp.arrays(np.uint8, st.tuples(st.integers(0, 4), st.just(2), st.integers(1, 3), st.integers(1, 3))),
    mean=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    deviation=st.tuples(st.floats(0.1, 1), st.floats(0.1, 1)),
)
def test_each_channel_by_its_own_numbers(pictures, mean, deviation):
    inputs = standardise(pictures, mean, deviation)
    assert inputs.dtype == np.float32
    assert inputs.shape == pictures.shape
    for channel in range(2):
        expected = (pictures[:, channel] / 255 - mean[channel]) / deviation[channel]
        np.testing.assert_allclose(inputs[:, channel], expected, rtol=1e-4, atol=1e-5)


def test_no_second_copy_is_made():
    pictures = np.zeros((500, 3, 32, 32), np.uint8)
    tracemalloc.start()
    inputs = standardise(pictures, [0.5] * 3, [0.2] * 3)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.1 * inputs.nbytes
    assert (pictures == 0).all()
