import math

import pytest
import torch

from offbeat.algorithms.components import NotFiniteError, WrongStepError
from offbeat.algorithms.components.new_model import checked_model

MODEL = torch.tensor([1.0, 2.0])


@pytest.mark.parametrize(
    ("max_step_norm", "expected"),
    [(math.inf, [4, 6]), (5.0, [4, 6]), (2.5, [2.5, 4]), (0.0, [1, 2])],
)
def test_a_step_that_is_too_long_is_shortened_in_its_direction(max_step_norm, expected):
    assert checked_model(MODEL, torch.tensor([4.0, 6.0]), max_step_norm).tolist() == expected
    assert MODEL.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("proposed", "found"),
    [
        (None, "NoneType"),
        (torch.ones(2, dtype=torch.float64), r"float64 of shape \(2,\)"),
        (torch.ones(2, 1), r"float32 of shape \(2, 1\)"),
    ],
)
def test_a_model_of_another_type_or_shape_is_refused(proposed, found):
    with pytest.raises(WrongStepError, match=rf"must return float32 of shape \(2,\), it returned {found}"):
        checked_model(MODEL, proposed, math.inf)


@pytest.mark.parametrize("entry", [math.nan, math.inf, 1e20])
def test_a_model_that_is_not_finite_or_whose_square_overflows_is_refused(entry):
    with pytest.raises(NotFiniteError, match="the new model is not finite"):
        checked_model(MODEL, torch.tensor([0.0, entry]), math.inf)
