"""Paths of the user in a section of a file: files, folders, import paths."""

from pathlib import Path
from typing import Annotated, Any

from offbeat_core.errors import OffbeatError, did_you_mean
from pydantic import AfterValidator, ValidationInfo

from offbeat.config.import_path import canonical, check_utf8, is_import_path


def _folder(info: ValidationInfo) -> Path:
    """Return the folder of the file, to which its paths are relative."""
    return (info.context or {}).get("folder", Path())


def _check_within(path: Path, info: ValidationInfo) -> None:
    """Raise ``ValueError`` for a path outside the only folder that is allowed."""
    within: Path | None = (info.context or {}).get("within")
    if within is not None and not path.resolve().is_relative_to(within.resolve()):
        raise ValueError(f"may only name files in {within}, the folder of the server's file")


def _check_line(path: str) -> None:
    """Raise ``ValueError`` for a path that would break the line of an error about it."""
    if any(char < " " for char in path):
        raise ValueError("must not have line breaks or other control characters")


def _absolute(path: str, info: ValidationInfo) -> str:
    _check_line(path)
    try:
        absolute = (_folder(info) / Path(path).expanduser()).absolute()
        check_utf8(absolute)
        _check_within(absolute, info)
    except RuntimeError:
        raise ValueError("the user does not exist; write the full path") from None
    except OffbeatError as error:
        raise ValueError(str(error)) from None
    return str(absolute)


def _canonical(text: str, info: ValidationInfo) -> str:
    if not is_import_path(text):
        raise ValueError('must be an import path such as "my_code.py:name" or "package.module:name"')
    return _absolute_import(text, info)


def _absolute_import(text: str, info: ValidationInfo) -> str:
    _check_line(text)
    try:
        path = canonical(text, _folder(info))
        place = path.rpartition(":")[0]
        if (info.context or {}).get("within") is not None and not place.endswith(".py"):
            raise ValueError("write it as path/to/file.py:name, with a file beside the server's file")
        _check_within(Path(place), info)
        return path
    except OffbeatError as error:
        # The caller's message begins with the key and the text.
        raise ValueError(str(error).removeprefix(f"{text!r}: ")) from None


# A file or folder of the user, relative to the file; absolute after validation.
UserPath = Annotated[str, AfterValidator(_absolute)]

# An object of the user's code; a file path in it is absolute after validation.
ImportPath = Annotated[str, AfterValidator(_canonical)]


def name_or_import_path(text: str, info: ValidationInfo, known: Any) -> str:
    """Return a known name, or an import path with an absolute file path."""
    if is_import_path(text):
        return _absolute_import(text, info)
    if text not in known:
        own = (info.context or {}).get("own", "an import path such as my_code.py:name")
        raise ValueError(f"{did_you_mean(text, known)}, or {own}")
    return text
