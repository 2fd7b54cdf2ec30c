"""What a run's numbers depend on besides its settings: versions of packages, the trainer, the user's own files."""

import hashlib
import json
import platform
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from offbeat.config.import_path import is_import_path, neighbour_files
from offbeat.data.dataset import Dataset
from offbeat.errors import OffbeatError

_PACKAGES = ("offbeat", "torch", "numpy", "scikit-learn", "pyarrow", "safetensors")
_DIGITS = 16  # of a file's SHA-256


def versions(config: Mapping[str, Any], dataset: Dataset) -> dict[str, str]:
    """Return the versions by what they are of.

    Of each file that the run's settings name, and of each that the user's code has imported from beside it, the
    beginning of its SHA-256; of data of the user's own, the examples' fingerprint.

    Args:
        config: The run's resolved configuration; what it names has been imported.
        dataset: What is learnt.

    Raises:
        OffbeatError: A file cannot be read.
    """
    packages = {name: metadata.version(name) for name in _PACKAGES}
    own_data = {"data": dataset.fingerprint} if is_import_path(dataset.name) else {}
    own_files = set(_own_files(config))
    own_files.update(*(neighbour_files(path.resolve().parent) for path in own_files if path.suffix == ".py"))
    try:
        hashes = {str(path): _sha256(path) for path in sorted(own_files)}
    except OSError as error:
        raise OffbeatError(f"cannot read {error.filename}: {error.strerror}") from None
    return {
        "python": platform.python_version(),
        **packages,
        "trainer": config["trainer"],
        # More threads add up in another order, which shows in the last bits.
        "threads": str(torch.get_num_threads()),
        **own_data,
        **hashes,
    }


def check_versions(folder: Path, now: Mapping[str, str]) -> None:
    """Check that the run in a folder was made by what is here now, or its numbers may be others.

    Raises:
        OffbeatError: It was not; names the first difference.
    """
    try:
        then: dict[str, str] = dict(json.loads((folder / "versions.json").read_text(encoding="utf-8")))
    except (OSError, TypeError, ValueError):
        raise OffbeatError(f"{folder / 'versions.json'} cannot be read: remove {folder} and run again") from None
    for what in now:
        is_file = Path(what).is_absolute()
        # A file that the run did not know is another run's, say an algorithm's that was added to the comparison.
        if then.get(what) == now[what] or (is_file and what not in then):
            continue
        if what == "data" or is_file:
            name = "what data.name returns" if what == "data" else what
            raise OffbeatError(
                f"{name} has changed since {folder} was begun, which may give other numbers: put it back, or remove "
                f"{folder} and run again"
            )
        raise OffbeatError(
            f"{folder} was begun with {what} {then.get(what)}, here is {now[what]}, which may give other numbers: "
            f"go on with {what} {then.get(what)}, or remove {folder} and run again"
        )


def _own_files(value: Any) -> Iterator[Path]:
    """Find the files and folders that a resolved configuration names, alone or before the colon of an import path."""
    if isinstance(value, Mapping):
        for below in value.values():
            yield from _own_files(below)
    elif isinstance(value, list | tuple):
        for below in value:
            yield from _own_files(below)
    elif isinstance(value, str):
        place = value.rpartition(":")[0]
        module = getattr(sys.modules.get(place), "__file__", None)
        for text in (value, place, *([module] if module else [])):
            path = Path(text)
            if path.is_absolute() and path.exists():
                yield path


def _sha256(path: Path) -> str:
    whole = hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            with file.open("rb") as content:
                whole.update(hashlib.file_digest(content, "sha256").digest())
    return whole.hexdigest()[:_DIGITS]
