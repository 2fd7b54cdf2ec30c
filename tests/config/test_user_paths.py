from pathlib import Path
from typing import Annotated

import pytest
from offbeat_core.tables.section import Section
from pydantic import AfterValidator, ValidationError, ValidationInfo

from offbeat.config.user_paths import ImportPath, UserPath, name_or_import_path


def known(text: str, info: ValidationInfo) -> str:
    return name_or_import_path(text, info, ["red", "green"])


class Example(Section):
    path: UserPath = ""
    code: ImportPath = ""
    colour: Annotated[str, AfterValidator(known)] = "red"


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
