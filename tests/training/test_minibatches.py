import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from offbeat.training.minibatches import example_orders, gather
from offbeat.uniform_numbers import example_order

VISITS = st.lists(
    st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(1, 70), st.integers(1, 200)),
    min_size=1,
    max_size=12,
)


@settings(max_examples=60)
@given(st.integers(0, 2**64 - 1), VISITS)
def test_the_order_of_each_of_many_visits_is_that_of_it_alone(seed, visits):
    orders = example_orders(seed, *np.array(visits, dtype=np.int64).T)
    for order, (client, visit, examples, draws) in zip(orders, visits, strict=True):
        alone = example_order(seed, client, visit, examples, draws)
        assert torch.equal(torch.from_numpy(order), alone)


def test_no_visits_have_no_orders():
    nothing = np.empty(0, np.int64)
    assert example_orders(1, nothing, nothing, nothing, nothing) == []


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
@pytest.mark.parametrize("chosen", [(0,), (4,), (2, 5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
def test_gather_is_indexing_with_a_copy(shape, chosen, dtype):
    examples = torch.arange(7 * math.prod(shape)).reshape(7, *shape).to(dtype)
    rows = torch.from_numpy(np.random.default_rng(1).integers(7, size=chosen))
    found = gather(examples, rows)
    assert found.dtype == dtype
    assert torch.equal(found, examples[rows])
    found.zero_()
    assert examples.sum() > 0
