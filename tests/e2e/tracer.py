"""A running process in which one system call on one file fails, by strace."""

import shutil
import signal
import subprocess
import time
from pathlib import Path
from random import Random
from typing import NamedTuple

_OPEN = [("openat", error) for error in ("EMFILE", "ENOSPC", "EIO")]
_FAULTS = {
    "database": [("pwrite64", "ENOSPC"), ("pwrite64", "EIO"), ("fdatasync", "EIO")],
    "update": [*_OPEN, ("pwrite64", "ENOSPC"), ("pwrite64", "EIO"), ("fdatasync", "EIO")],
    "folder": [*_OPEN, ("fsync", "EIO")],
    "version": [*_OPEN, ("fsync", "EIO"), ("unlink", "EIO")],
    "coming": [*_OPEN, ("write", "ENOSPC"), ("write", "EIO"), ("rename", "ENOSPC"), ("rename", "EIO")],
}
"""What may fail on which kind of file."""

_LARGEST_NUMBER = 4
_BEGIN_SECONDS = 10.0


class Fault(NamedTuple):
    """A failing call on a file, and its error."""

    path: Path
    call: str
    error: str
    number: int  # from 1

    def __str__(self) -> str:
        return f"{self.call} {self.number} on {self.path.parent.name}/{self.path.name}: {self.error}"


def draw(folder: Path, numbers: Random) -> Fault:
    """Return a fault on one of a server's files, or on one that is about to be."""
    versions = sorted(int(path.stem) for path in (folder / "models").glob("*.safetensors"))
    files = {
        "database": [folder / f"offbeat.sqlite{suffix}" for suffix in ("", "-wal")],
        "update": list((folder / "updates").iterdir()),
        "folder": [folder / name for name in ("updates", "models", "checkpoints")],
        "version": [folder / "models" / f"{version}.safetensors" for version in versions],
        "coming": [folder / "models" / f".{versions[-1] + step}.pending" for step in range(1, 4)],
    }
    kind = numbers.choice([kind for kind, paths in files.items() if paths])
    call, error = numbers.choice(_FAULTS[kind])
    number = 1 if kind == "coming" else numbers.randint(1, _LARGEST_NUMBER)
    return Fault(numbers.choice(files[kind]), call, error, number)


class Tracer:
    """Lets a fault befall a process while the context lasts."""

    def __init__(self, process: int, fault: Fault) -> None:
        inject = f"inject={fault.call}:error={fault.error}:when={fault.number}"
        options = ["-f", "-p", str(process), "-P", str(fault.path), "-e", f"trace={fault.call}", "-e", inject]
        self._strace = subprocess.Popen(
            ["strace", *options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )

    def __enter__(self) -> "Tracer":
        assert self._strace.stderr is not None
        self._strace.stderr.readline()  # "attached"
        return self

    def __exit__(self, *_: object) -> None:
        self._strace.send_signal(signal.SIGINT)  # it detaches
        said = self._strace.communicate(timeout=_BEGIN_SECONDS)[1]
        self.injected = said.count("(INJECTED)")


def can_trace() -> bool:
    """Return whether strace is here and may trace a process."""
    if shutil.which("strace") is None:
        return False
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        try:
            strace = subprocess.Popen(["strace", "-p", str(sleeper.pid)], stderr=subprocess.PIPE, text=True)
            time.sleep(0.3)
            is_attached = strace.poll() is None
            if is_attached:
                strace.send_signal(signal.SIGINT)
            strace.communicate(timeout=_BEGIN_SECONDS)
        finally:
            sleeper.kill()
    return is_attached
