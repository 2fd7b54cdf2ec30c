import math

import numpy as np
import pytest

from offbeat_client.number_checks import LARGEST_COUNT, LARGEST_FLOAT32, check_count, check_not_negative, check_positive


def test_the_limits_are_those_of_32_bits():
    assert np.iinfo(np.int32).max == LARGEST_COUNT
    assert float(np.finfo(np.float32).max) == LARGEST_FLOAT32


@pytest.mark.parametrize("value", [1, LARGEST_COUNT, np.int64(3)])
def test_a_count_passes(value):
    assert check_count("cohort", value) is None


@pytest.mark.parametrize("value", [0, -1, 1.0, True, math.nan, "1"])
def test_other_values_are_not_counts(value):
    with pytest.raises(ValueError, match=f"cohort must be a whole number of at least 1, got {value}"):
        check_count("cohort", value)


def test_a_count_beyond_32_bits_is_refused():
    with pytest.raises(ValueError, match=f"cohort must be at most {LARGEST_COUNT}, got {LARGEST_COUNT + 1}"):
        check_count("cohort", LARGEST_COUNT + 1)


@pytest.mark.parametrize("check", [check_positive, check_not_negative])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e39, -1e39])
def test_a_number_is_finite_in_32_bits(check, value):
    with pytest.raises(ValueError, match="lr must be finite in 32 bits, got"):
        check("lr", value)


def test_zero_is_not_positive_but_not_negative_either():
    with pytest.raises(ValueError, match="lr must be greater than 0, got 0"):
        check_positive("lr", 0.0)
    with pytest.raises(ValueError, match="lr must not be negative, got -1"):
        check_not_negative("lr", -1.0)
    assert check_positive("lr", 1e-45) is None
    assert check_not_negative("lr", 0.0) is None
    assert check_positive("lr", LARGEST_FLOAT32) is None
