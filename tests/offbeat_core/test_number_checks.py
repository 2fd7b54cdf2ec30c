import math
import re

import numpy as np
import pandas as pd
import pytest
import torch
from offbeat_core.number_checks import (
    LARGEST_COUNT,
    LARGEST_FLOAT32,
    check_count,
    check_not_negative,
    check_positive,
    cut,
    is_number,
    plain_number,
    short,
)


def test_a_message_is_one_line():
    with pytest.raises(ValueError, match=r"lr must be a number, got tensor\(\[\[1., 0.\], \[0., 1.\]\]\)$"):
        check_positive("lr", torch.eye(2))


def test_the_limits_are_those_of_32_bits():
    assert np.iinfo(np.int32).max == LARGEST_COUNT
    assert float(np.finfo(np.float32).max) == LARGEST_FLOAT32


NUMBERS = [np.int64(3), np.uint8(3), np.array(3), np.array([3]), torch.tensor(3), pd.Series([3]), pd.Series([3])[0]]


@pytest.mark.parametrize("value", [3, *NUMBERS])
def test_numbers_of_other_libraries_become_pythons(value):
    assert type(check_count("cohort", value)) is int
    assert check_count("cohort", value) == check_positive("lr", value) == check_not_negative("lr", value) == 3
    for number in (plain_number(value), check_positive("lr", value)):
        assert type(number) is int
    half = value / 2
    assert plain_number(half) == check_positive("lr", half) == 1.5
    assert type(check_positive("lr", half)) is float


@pytest.mark.parametrize(
    "value",
    [
        *[True, np.True_, torch.tensor(True), "3", None, [3], np.arange(3), torch.zeros(2), {}, pd.NA, pd.NaT, 3j],
        *[np.ma.masked, np.ma.masked_array([3], [True]), np.timedelta64(3, "ns"), np.array("2024-01-01", "M8[ns]")],
    ],
)
def test_all_else_is_not_a_number_and_shown_as_it_was_given(value):
    assert not is_number(plain_number(value))
    for check in (check_positive, check_not_negative):
        with pytest.raises(ValueError, match=re.escape(f"lr must be a number, got {short(value)}")):
            check("lr", value)
    with pytest.raises(ValueError, match=re.escape(f"cohort must be a whole number of at least 1, got {short(value)}")):
        check_count("cohort", value)


@pytest.mark.parametrize("value", [1, LARGEST_COUNT])
def test_a_count_passes(value):
    assert check_count("cohort", value) == value


@pytest.mark.parametrize("value", [0, -1, 1.0, math.nan])
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
    assert check_positive("lr", 1e-45) == 1e-45
    assert check_not_negative("lr", 0.0) == 0
    assert check_positive("lr", LARGEST_FLOAT32) == LARGEST_FLOAT32


def test_a_value_is_one_short_line() -> None:
    assert short("3") == "'3'"
    assert short("a\n b") == r"'a\n b'"
    assert short(torch.eye(2)) == "tensor([[1., 0.], [0., 1.]])"
    assert short(np.arange(1000)).count("\n") == 0
    assert cut("x" * 80) == "x" * 80
    assert cut("x" * 81) == "x" * 79 + "…"
