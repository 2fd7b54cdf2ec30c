import numpy as np
import pytest
import torch
from offbeat_core.errors import OffbeatError

from offbeat.config.steps_function import StepsFunction


@pytest.mark.parametrize("steps", [1, np.int64(1), torch.tensor(3), 1_000_000])
def test_a_function_gives_whole_numbers(steps):
    found = StepsFunction(lambda _: steps, "mine")(7, 5)
    assert found == steps
    assert type(found) is int


@pytest.mark.parametrize("steps", [0, -1, 2.0, True, None, "3", 1_000_001])
def test_other_answers_of_a_function_are_refused(steps):
    with pytest.raises(OffbeatError) as caught:
        StepsFunction(lambda examples: steps if examples == 7 else 1, "x.py:mine")(7, 5)
    assert str(caught.value) == (
        f"local.steps = 'x.py:mine' returned {steps!r} for 7 examples: it must return a whole number in 1 … 1,000,000"
    )


def test_a_function_that_fails_is_one_line_with_its_place():
    with pytest.raises(OffbeatError, match=r"^local.steps = 'mine' failed for 7 examples: Zero.*_function.py:\d+"):
        StepsFunction(lambda examples: 1 // (examples - 7), "mine")(7, 5)
