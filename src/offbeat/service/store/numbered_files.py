"""Folders of files that are named by a number."""

from pathlib import Path


def numbers_of(folder: Path) -> list[int]:
    """Return the numbers that name safetensors files in a folder.

    Files with other names are ignored.
    """
    return [int(path.stem) for path in folder.glob("*.safetensors") if path.stem.isdecimal()]
