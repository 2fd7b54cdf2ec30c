"""A demo's folder, which one demo uses at a time."""

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout
from offbeat_core.errors import OffbeatError


@contextmanager
def empty_folder(folder: Path) -> Generator[None]:
    """Lock a folder, and remove the files of an earlier demo."""
    marker = folder / "demo.lock"
    if folder.exists() and not folder.is_dir():
        raise OffbeatError(f"{folder} is a file: choose another folder")
    if folder.exists() and not marker.exists() and any(folder.iterdir()):
        raise OffbeatError(f"{folder} holds something other than a demo: choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(marker, blocking=False):
            for path in folder.iterdir():
                if path.is_dir():
                    shutil.rmtree(path)
                elif path != marker:
                    path.unlink()
            yield
    except Timeout:
        raise OffbeatError(f"another demo runs in {folder}: wait for its end, or choose another folder") from None
