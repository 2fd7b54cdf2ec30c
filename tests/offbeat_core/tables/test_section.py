import re

import pytest
from offbeat_core.tables.section import Count, NotNegative, Positive, Probability, Section
from pydantic import ValidationError


class Example(Section):
    positive: Positive = 1.0
    not_negative: NotNegative = 1.0
    probability: Probability = 0.5
    count: Count = 1
    colour: str = "red"


@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [
        ("positive", [1e-300, 3, 1e300], [0, 0.0, -1.0, float("inf"), float("nan"), "1", True]),
        ("not_negative", [0, 1e300], [-1e-300, float("inf"), float("nan"), "1", False]),
        ("probability", [0, 0.5, 1], [-0.1, 1.1, float("nan"), "0.5"]),
        ("count", [1, 2**40], [0, -1, 1.0, "1", True]),
    ],
)
def test_ranges(key: str, good: list[object], bad: list[object]) -> None:
    for value in good:
        assert getattr(Example.model_validate({key: value}), key) == value
    for value in bad:
        with pytest.raises(ValidationError):
            Example.model_validate({key: value})


def test_an_unknown_key_names_the_nearest() -> None:
    with pytest.raises(ValidationError, match=r"unknown key colur: did you mean 'colour'\? Allowed: colour, count"):
        Example.model_validate({"colur": "red"})


class Training(Section):
    lr: Positive = 1.0


class Whole(Section):
    colour: str = "red"
    local: Training = Training()


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("lr", r"unknown key lr: It belongs in the table \[local\]$"),
        ("learning_rate", r"unknown key learning_rate: did you mean 'lr'\? It belongs in the table \[local\]$"),
        ("colur", r"unknown key colur: did you mean 'colour'\? Allowed: colour, local$"),
    ],
)
def test_an_unknown_key_of_a_table_within_names_the_table(key: str, hint: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Whole.model_validate({key: 1})
    assert any(re.search(hint, error["msg"]) for error in caught.value.errors())


def test_a_section_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Example().count = 3
