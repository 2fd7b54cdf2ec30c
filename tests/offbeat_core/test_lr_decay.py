import math

import pytest
from offbeat_core.lr_decay import LR_DECAYS, LrDecay, exponential, inverse_square_root, step


@pytest.mark.parametrize(
    ("decay", "factors"),
    [
        (exponential(0.5), {0: 1, 1: 0.5, 2: 0.25, 5: 0.03125}),
        (step(3), {0: 1, 2: 1, 3: 0.1, 5: 0.1, 6: 0.01}),
        (step(1, factor=0.5), {0: 1, 1: 0.5, 3: 0.125}),
        (inverse_square_root(), {0: 1, 3: 0.5, 99: 0.1}),
        (inverse_square_root(versions=10), {0: 1, 10: math.sqrt(0.5), 30: 0.5}),
    ],
    ids=lambda value: value.name if isinstance(value, LrDecay) else "",
)
def test_factors_by_hand(decay, factors):
    assert {version: decay(version) for version in factors} == pytest.approx(factors)


def test_no_factor_raises_at_a_late_version():
    decays = exponential(1e-3), step(1, 1e-3), inverse_square_root(1e-3)
    assert {decay.name for decay in decays} == set(LR_DECAYS)
    assert all(0 <= decay(2**31) < 1e-6 for decay in decays)


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (exponential, {"factor": 0.0}, r"factor must be in \(0, 1\], got 0.0"),
        (exponential, {"factor": 1.01}, "factor must be in"),
        (exponential, {"factor": math.nan}, "factor must be in"),
        (step, {"every": 0}, "every must be a whole number of at least 1, got 0"),
        (step, {"every": 1, "factor": 2.0}, "factor must be in"),
        (inverse_square_root, {"versions": 0.0}, "versions must be greater than 0"),
        (inverse_square_root, {"versions": math.inf}, "versions must be finite"),
    ],
)
def test_parameters_out_of_range_are_refused(make, arguments, message):
    with pytest.raises(ValueError, match=message):
        make(**arguments)
