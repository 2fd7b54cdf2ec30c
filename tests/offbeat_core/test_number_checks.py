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
        *[True, np.True_, torch.tensor(True), "3", None, [3], np.arange(3), torch.eye(2), {}, pd.NA, pd.NaT, 3j],
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


AT_LEAST_1 = "cohort must be a whole number of at least 1, got {}"


@pytest.mark.parametrize(
    ("check", "accepted", "refused", "message"),
    [
        (check_count, [1, LARGEST_COUNT], [0, 1.0, math.nan], AT_LEAST_1),
        (check_count, [], [LARGEST_COUNT + 1], f"cohort must be at most {LARGEST_COUNT}, got {{}}"),
        (check_positive, [1e-45, LARGEST_FLOAT32], [0.0], "cohort must be greater than 0, got {}"),
        (check_not_negative, [0.0, LARGEST_FLOAT32], [-1.0], "cohort must not be negative, got {}"),
    ],
)
def test_borders(check, accepted, refused, message):
    for value in accepted:
        assert check("cohort", value) == value
    for value in refused:
        with pytest.raises(ValueError, match=message.format(value)):
            check("cohort", value)


@pytest.mark.parametrize("check", [check_positive, check_not_negative])
@pytest.mark.parametrize("value", [math.nan, math.inf, -1e39])
def test_a_number_is_finite_in_32_bits(check, value):
    with pytest.raises(ValueError, match="lr must be finite in 32 bits, got"):
        check("lr", value)


def test_a_value_is_one_short_line() -> None:
    assert short("3") == "'3'"
    assert short("a\n b") == r"'a\n b'"
    assert short(torch.eye(2)) == "tensor([[1., 0.], [0., 1.]])"
    assert short(np.arange(1000)).count("\n") == 0
    assert cut("x" * 80) == "x" * 80
    assert cut("x" * 81) == "x" * 79 + "…"
