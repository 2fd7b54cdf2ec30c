"""Versions that a run's numbers depend on: packages, threads, user files, data."""

import hashlib
import platform
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from offbeat_core.errors import OffbeatError

from offbeat.config.import_path import is_import_path, neighbour_files
from offbeat.data.dataset import Dataset

_PACKAGES = ("offbeat", "torch", "numpy", "scikit-learn", "pyarrow", "safetensors")
_DIGITS = 16  # of a file's SHA-256


def versions(config: Mapping[str, Any], dataset: Dataset) -> dict[str, str]:
    """Return the version of each package, file and data set by its name.

    A file's version is the beginning of its SHA-256. Included are the files that the resolved configuration names, and
    those in the same folders that the user's code has imported. The version of the user's own data is their
    fingerprint.
    """
    packages = {name: metadata.version(name) for name in _PACKAGES}
    users_data = {"data": dataset.fingerprint} if is_import_path(dataset.name) else {}
    users_files = set(_files_in(config))
    users_files.update(*(neighbour_files(path.resolve()) for path in users_files if path.suffix == ".py"))
    try:
        hashes = {str(path): _sha256(path) for path in sorted(users_files)}
    except OSError as error:
        raise OffbeatError(f"cannot read {error.filename}: {error.strerror}") from None
    return {
        "python": platform.python_version(),
        **packages,
        "trainer": "flower" if "flower" in config and config["trainer"] == "auto" else config["trainer"],
        **_gpu(config),
        # The number of threads decides the order of additions, and so the last bits.
        "threads": str(torch.get_num_threads()),
        **users_data,
        **hashes,
    }


def _gpu(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the card and its software, on which the last bits depend."""
    if not config["device"].startswith("cuda"):
        return {}
    return {
        "GPU": torch.cuda.get_device_name(config["device"]),
        "CUDA": str(torch.version.cuda or torch.version.hip),
        "cuDNN": str(torch.backends.cudnn.version()),
    }


def _files_in(value: Any) -> Iterator[Path]:
    """Yield the files and folders in a configuration, also those of import paths."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _files_in(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _files_in(inner)
    elif isinstance(value, str):
        place = value.rpartition(":")[0]
        module = getattr(sys.modules.get(place), "__file__", None)
        for text in (value, place, *([module] if module else [])):
            path = Path(text)
            # A text "/" is a separator rather than a folder.
            if path.is_absolute() and path != path.parent and path.exists():
                yield path


def _sha256(path: Path) -> str:
    total = hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            with file.open("rb") as content:
                total.update(hashlib.file_digest(content, "sha256").digest())
    return total.hexdigest()[:_DIGITS]
