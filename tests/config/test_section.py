import re
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import AfterValidator, ValidationError, ValidationInfo

from offbeat.config.section import (
    Count,
    ImportPath,
    NotNegative,
    Positive,
    Probability,
    Section,
    UserPath,
    name_or_import_path,
)


def known(text: str, info: ValidationInfo) -> str:
    return name_or_import_path(text, info, ["red", "green"])


class Example(Section):
    positive: Positive = 1.0
    not_negative: NotNegative = 1.0
    probability: Probability = 0.5
    count: Count = 1
    path: UserPath = ""
    code: ImportPath = ""
    colour: Annotated[str, AfterValidator(known)] = "red"


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
    with pytest.raises(ValidationError, match=r"unknown key colur: did you mean 'colour'\? Allowed: code, colour"):
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


def validated(folder: Path | None, **values: str) -> Example:
    return Example.model_validate(values, context=None if folder is None else {"folder": folder})


class TestPaths:
    def test_are_relative_to_the_folder(self, tmp_path: Path) -> None:
        assert validated(tmp_path, path="a/b.csv").path == str(tmp_path / "a" / "b.csv")
        assert validated(tmp_path, path="/a/b.csv").path == "/a/b.csv"
        assert validated(tmp_path, path="~/b.csv").path == str(Path.home() / "b.csv")

    def test_without_a_folder_to_the_working_one(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        assert validated(None, path="b.csv").path == str(Path.cwd() / "b.csv")
        assert validated(Path("sub"), path="b.csv").path == str(Path.cwd() / "sub" / "b.csv")

    def test_an_unknown_home_folder(self, tmp_path: Path) -> None:
        with pytest.raises(ValidationError, match="the user does not exist"):
            validated(tmp_path, path="~nobody-of-that-name/x")

    def test_of_code(self, tmp_path: Path) -> None:
        assert validated(tmp_path, code="a/b.py:f").code == f"{tmp_path.resolve()}/a/b.py:f"
        assert validated(tmp_path, code="a.b:f").code == "a.b:f"
        assert validated(tmp_path, colour="b.py:f").colour == f"{tmp_path.resolve()}/b.py:f"

    @pytest.mark.parametrize("text", ["f", "b.py:", ":f", "b.py:1"])
    def test_wrong_import_paths(self, text: str, tmp_path: Path) -> None:
        with pytest.raises(ValidationError):
            validated(tmp_path, code=text)


def test_names() -> None:
    assert validated(None, colour="green").colour == "green"
    with pytest.raises(ValidationError, match=r"did you mean 'green'\? Allowed: green, red, or an import path"):
        validated(None, colour="greem")
