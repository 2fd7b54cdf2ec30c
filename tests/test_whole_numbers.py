import numpy as np
import pytest
import torch
from offbeat_private.masks.fixed_point import whole_numbers

from offbeat.whole_numbers import Grid, WholeNumbers
from tests.algorithms.case import Deferred

GRID = Grid(clip_norm=4.0, largest=8)


def test_a_step_is_the_clip_norm_over_the_largest_number():
    assert GRID.step == 0.5


@pytest.mark.parametrize("is_promise", [False, True])
def test_an_update_is_divided_clipped_and_scaled_in_this_order(is_promise):
    # (12, 16) / 2 has the norm 10; clipped to 4 it is (2.4, 3.2), half of that (1.2, 1.6), in steps (2.4, 3.2).
    vector = torch.tensor([12.0, 16.0])
    found = []
    for number in range(400):
        update = Deferred(vector) if is_promise else vector
        found.append(WholeNumbers(update, GRID, 2.0, 0.5, number.to_bytes(32, "big")).resolve())
    numbers = torch.stack(found)
    assert numbers.dtype == torch.int32
    assert [set(column.tolist()) for column in numbers.T] == [{2, 3}, {3, 4}]
    torch.testing.assert_close(numbers.double().mean(dim=0), torch.tensor([2.4, 3.2]).double(), atol=0.1, rtol=0)
    assert vector.tolist() == [12.0, 16.0]


def test_they_are_the_clients():
    """Whoever makes an update whole, the numbers of a key are the same."""
    vector = torch.linspace(-1, 1, 100)
    expected = whole_numbers(vector.numpy(), clip_norm=4.0, largest=8, key=b"k" * 32, divisor=3.0, scale=0.7)
    assert np.array_equal(WholeNumbers(vector, GRID, 3.0, 0.7, b"k" * 32).resolve().numpy(), expected)


def test_an_update_is_trained_only_when_its_numbers_are_needed():
    work = Deferred(torch.tensor([1.0]))
    numbers = WholeNumbers(work, GRID, 1.0, 1.0, bytes(32))
    assert work.resolved == 0
    assert numbers.resolve().tolist() == [2]
    assert work.resolved == 1
