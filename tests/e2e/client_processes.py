"""Clients in processes of their own, to be killed and started again."""

import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path

from offbeat_core.files import read_json
from safetensors.torch import load_file
from torch import Tensor

from tests.e2e.launcher_program import TRAINING
from tests.e2e.server_process import Launcher, until


class ClientProcess:
    """A client that is killed and comes back with the same folder; its output goes into a file beside it."""

    def __init__(self, launcher: Launcher, folder: Path, **arguments: str) -> None:
        self._launcher = launcher
        self._folder = folder
        self._output = folder.with_suffix(".log")
        self._arguments = {"folder": str(folder), **arguments}
        self.start()

    def start(self) -> None:
        (self._folder / TRAINING).unlink(missing_ok=True)
        self._process = self._launcher.tell({"start": self._arguments, "output": str(self._output)})

    def strike(self) -> None:
        """Kill it."""
        os.kill(self._process, signal.SIGKILL)

    def start_again(self) -> None:
        """Start it once it is dead."""
        assert self.wait() == signal.SIGKILL, self.said
        self.start()

    def wait(self) -> int:
        """Wait for its end, and return how it ended."""
        return until(lambda: self._launcher.tell({"ended": self._process}))[0]

    @property
    def said(self) -> str:
        return self._output.read_text()

    @property
    def is_training(self) -> bool:
        return (self._folder / TRAINING).exists()

    @property
    def number(self) -> int | None:
        """Its number at the server, if it knows it."""
        return self.notes().number

    def notes(self, run: str | None = None) -> "Notes":
        """Return its notes, or those of one of several runs."""
        if run is None:
            return Notes(self._folder, self.said)
        turns = re.split(r"^serving run (\S+)$", self.said, flags=re.MULTILINE)
        said = [text for name, text in zip(turns[1::2], turns[2::2], strict=True) if name == run]
        return Notes(self._folder / "runs" / run, "".join(said))


@dataclass(frozen=True)
class Notes:
    """The folder of a client in a run, and what it has said there."""

    folder: Path
    said: str

    @property
    def number(self) -> int | None:
        identity = read_json(self.folder / "identity.json", dict)
        return None if identity is None else identity["client"]

    def receipts(self) -> dict[int, bool]:
        """Return which visits it has noted the receipts of, and whether they counted."""
        found = re.findall(r"^visit (\d+): (counted|unused)\b", self.said, re.MULTILINE)
        return {int(visit): what == "counted" for visit, what in found}

    def last(self) -> int | None:
        """Return the version that its last counted update was made from, as far as it knows."""
        return (read_json(self.folder / "kept.json", dict) or {}).get("since")

    def memory(self) -> Tensor | None:
        """Return what it remembers of that."""
        name = (read_json(self.folder / "kept.json", dict) or {}).get("memory")
        return None if name is None else load_file(self.folder / name)["memory"]
