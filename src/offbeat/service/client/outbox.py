"""What a client keeps beside its name: the update that no receipt has come for, and its memory between visits.

Two small files say what counts, and each is replaced at once. ``upload.json`` is there from the moment when the update
is whole on disk until its receipt was heard and noted. ``kept.json`` names the memory; a receipt that says "counted"
changes it first, and only then does ``upload.json`` go. Whoever is killed in between finds the update still there,
asks again, hears the first receipt again and notes it again. All other files are remains and are removed.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from offbeat.errors import OffbeatError
from offbeat.service.client.contract import Visit
from offbeat.service.client.durable import put_in_place, read_json, remove, write_json

_Saved = TypeVar("_Saved")


@dataclass(frozen=True, slots=True)
class Pending:
    """An update that is made but has no receipt.

    Attributes:
        visit: The visit's number.
        version: The version that it was made from.
        length: The number of parameters d.
        lease_seconds: As in the visit.
        has_memory: Whether the client has to remember something of it.
        announcement: What ``Offbeat-Update`` says.
    """

    visit: int
    version: int
    length: int
    lease_seconds: float | None
    has_memory: bool
    announcement: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Kept:
    """What a client knows of its counted updates.

    Attributes:
        since: The version of the last one; None if there is none.
        memory: The name of the file with what it remembers of that; None if that is nothing.
        upload_seconds: Measured seconds of its last upload, as if it had been uncompressed.
    """

    since: int | None = None
    memory: str | None = None
    upload_seconds: float | None = None


class Outbox:
    """The update that is on its way, and the memory, in a client's folder.

    Args:
        folder: The folder, which nobody else uses; remains of a killed process are removed from it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pending = folder / "upload.json"
        self._kept = folder / "kept.json"
        self._tidy()

    def pending(self) -> Pending | None:
        """Return the update that has no receipt; None if there is none."""
        saved = read_json(self._pending)
        return None if saved is None else _made(self._pending, Pending, saved)

    def body(self, visit: int) -> Path:
        """Return where a visit's body is."""
        return self._folder / f"update-{visit}"

    def kept(self) -> Kept:
        """Return what is known of counted updates."""
        saved = read_json(self._kept)
        return Kept() if saved is None else _made(self._kept, Kept, saved)

    def memory(self, since: int | None, length: int) -> Tensor | None:
        """Return what the client remembers of its last counted update, ``(d,)``, if that was made from ``since``.

        None if it remembers nothing, or something else than the server: then that is worth nothing.
        """
        kept = self.kept()
        if since is None or kept.since != since or kept.memory is None:
            return None
        try:
            memory = load_file(self._folder / kept.memory)["memory"]
        except (OSError, SafetensorError, LookupError):
            return None
        return memory if memory.shape == (length,) else None

    def put(
        self,
        visit: Visit,
        write_body: Callable[[Path], None],
        memory: Tensor | None,
        announce: Callable[[Path], dict[str, Any]],
    ) -> Pending:
        """Keep a finished update; from here on it outlives any kill.

        Args:
            visit: The visit.
            write_body: Writes the body to a path.
            memory: What the client will remember of it if it counts, ``(d,)``.
            announce: Returns what ``Offbeat-Update`` says of the body at a path.
        """
        body = self.body(visit.number)
        _write(body, write_body)
        if memory is not None:
            _write(self._memory_path(visit.number), lambda path: save_file({"memory": memory}, path))
        pending = Pending(
            visit.number, visit.version, visit.length, visit.lease_seconds, memory is not None, announce(body)
        )
        write_json(self._pending, asdict(pending))
        return pending

    def acknowledge(self, pending: Pending, counted: bool, upload_seconds: float | None) -> None:
        """Note the receipt of an update; the memory changes if it counted."""
        kept = self.kept()
        since, memory = kept.since, kept.memory
        if counted:
            since = pending.version
            memory = self._memory_path(pending.visit).name if pending.has_memory else None
        write_json(self._kept, asdict(Kept(since, memory, upload_seconds or kept.upload_seconds)))
        self.drop()

    def drop(self) -> None:
        """Forget the update that has no receipt, if there is one; the memory stays as it is."""
        remove(self._pending)
        self._tidy()

    def _memory_path(self, visit: int) -> Path:
        return self._folder / f"memory-{visit}.safetensors"

    def _tidy(self) -> None:
        pending = self.pending()
        needed = {self.kept().memory}
        if pending is not None:
            needed |= {self.body(pending.visit).name, self._memory_path(pending.visit).name}
        for pattern in ("update-*", "memory-*"):
            for path in self._folder.glob(pattern):
                if path.name not in needed:
                    path.unlink()


def _write(path: Path, write: Callable[[Path], None]) -> None:
    partial = path.with_name(f"{path.name}.partial")
    try:
        write(partial)
    except SafetensorError as error:  # this is how it says that the disk is full
        raise OffbeatError(f"cannot write {path}: {error}") from None
    put_in_place(partial, path)


def _made(path: Path, kind: Callable[..., _Saved], saved: dict[str, Any]) -> _Saved:
    try:
        return kind(**saved)
    except TypeError:
        raise OffbeatError(f"{path} is broken: remove it") from None
