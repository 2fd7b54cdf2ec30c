"""Files that survive a kill and a power cut; texts and tables that people edit.

A file is complete or absent, never in between.
"""

import codecs
import hashlib
import json
import os
import tomllib
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from offbeat_core.errors import OffbeatError

_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


def partial_path(path: Path) -> Path:
    """Return the hidden path beside ``path`` under which its next content is written."""
    return path.with_name(f".{path.name}.partial")


@contextmanager
def durable_file(path: Path, mode: int = 0o666) -> Generator[BinaryIO]:
    """Open a file that replaces ``path``, on disk, at the end of the context.

    If the context raises, ``path`` stays as it was. ``mode`` are its permissions before the umask.
    """
    partial = partial_path(path)
    partial.unlink(missing_ok=True)  # a leftover would keep its own permissions
    try:
        partial.touch(mode, exist_ok=False)
        with partial.open("wb") as file:
            yield file
        replace_durably(partial, path)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def write_durably(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Replace the content of ``path``, on disk; see ``durable_file``."""
    with durable_file(path, mode) as file:
        file.write(content)


def append_durably(path: Path, content: bytes) -> None:
    """Append to a file, on disk; it is made if it does not exist."""
    is_new = not path.exists()
    with path.open("ab") as file:
        file.write(content)
        file.flush()
        sync_file(file.fileno())
    if is_new:
        sync_folder(path.parent)


def replace_durably(partial: Path, path: Path) -> None:
    """Rename a complete file to ``path``; its content and name are then on disk."""
    sync_file(partial)
    partial.replace(path)
    sync_folder(path.parent)


def remove_durably(path: Path) -> None:
    """Remove a file if it exists; wait until that is on disk."""
    path.unlink(missing_ok=True)
    sync_folder(path.parent)


def files_in(folder: Path, pattern: str) -> list[Path]:
    """Return a folder's files whose names match a pattern; none without the folder.

    From Python 3.13 on, ``Path.glob`` finds nothing in a folder that cannot be read.

    Raises:
        OSError: The folder cannot be read.
    """
    try:
        return [path for path in folder.iterdir() if fnmatchcase(path.name, pattern)]
    except FileNotFoundError:
        return []


def delete_files(paths: Iterable[Path]) -> None:
    """Delete files, unless they are gone already."""
    for path in paths:
        path.unlink(missing_ok=True)


def sync_file(file: Path | int) -> None:
    """Wait until the content of a file, a path or a descriptor, is on disk."""
    if isinstance(file, Path):
        with file.open("rb+") as opened:  # Windows syncs only files that are open for writing
            sync_file(opened.fileno())
    elif hasattr(os, "fdatasync"):
        os.fdatasync(file)
    else:
        os.fsync(file)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk."""
    if os.name == "nt":  # which cannot open folders
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_text(path: Path) -> str:
    """Return a file's text, UTF-8, or UTF-16 if it begins with that mark.

    Editors on Windows write the mark of either. Line ends are left as they are. Raises ``OSError`` and
    ``UnicodeDecodeError``.
    """
    content = path.read_bytes()
    return content.decode(encoding_of(content))


def encoding_of(content: bytes) -> str:
    """Return the encoding of a text that begins so."""
    return next((name for mark, name in _MARKS.items() if content.startswith(mark)), "utf-8")


def read_table(path: Path) -> dict[str, Any]:
    """Return a TOML file as an unchecked table."""
    try:
        return tomllib.loads(read_text(path))
    except FileNotFoundError:
        raise OffbeatError(f"no such file: {path}") from None
    except OSError as error:
        raise OffbeatError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise OffbeatError(f"cannot read {path}: it is not UTF-8") from None
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits, or thousands of brackets
        raise OffbeatError(f"{path} is not valid TOML: {error}") from None


_Saved = TypeVar("_Saved")


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Replace the content of ``path``, on disk."""
    write_durably(path, json.dumps(value).encode(), mode=0o600)


def read_json(path: Path, kind: Callable[..., _Saved], advice: str = "remove it") -> _Saved | None:
    """Return the JSON object in a file as ``kind``; None if the file does not exist.

    The error about a broken file ends with the advice.
    """
    try:
        return kind(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (TypeError, ValueError):
        raise OffbeatError(f"{path} is broken: {advice}") from None
