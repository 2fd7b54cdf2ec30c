"""A client's update without receipt, and its memory from visit to visit.

Two small files are authoritative, and each is replaced at once. ``upload.json`` exists from the moment when the update
is complete on disk until its receipt is recorded. ``kept.json`` names the memory; a receipt that says "counted" changes
it first, and only then is ``upload.json`` removed. A client killed in between finds the update again, asks again, and
records the same receipt again. All other files are leftovers and are removed.

A private update is in the outbox as its delta first; its share is complete on disk before ``upload.json`` announces it.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np
from numpy.typing import DTypeLike, NDArray
from offbeat_client.visit import Visit
from offbeat_core.errors import OffbeatError
from offbeat_core.files import partial_path, read_json, remove_durably, replace_durably, write_json
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file


class Delta(TypedDict):
    """The facts kept with the delta of a private update.

    ``terms`` and ``model`` are digests in hexadecimal digits; the delta will be divided by ``divisor``. ``since`` is
    the version of the counted update to which its difference will refer.
    """

    terms: str
    divisor: float
    model: str
    since: NotRequired[int | None]


@dataclass(frozen=True, slots=True)
class Pending:
    """A finished update without receipt.

    ``visit`` to ``lease_seconds`` are those of the visit; ``announcement`` is the header ``Offbeat-Update``, None for a
    private update without a share. ``delta`` is None for an update that is not private.
    """

    visit: int
    version: int
    length: int
    lease_seconds: float | None
    has_memory: bool
    announcement: dict[str, Any] | None
    delta: Delta | None = None
    has_state: bool = False


@dataclass(frozen=True, slots=True)
class Kept:
    """A client's knowledge of its counted updates.

    Attributes:
        since: The version that the last one started from; None if there is none.
        memory: The name of the file with its memory; None for none.
        upload_seconds: Measured seconds of its last upload, scaled to an uncompressed one.
        earlier_since: The version of the counted update before the last, to which the server returns if it could not
            open the sum with the last one; None where that cannot happen.
        earlier_memory: The name of the file with its memory of that update.
        state: The name of the file with what the user's client wants to have again; None for none.
    """

    since: int | None = None
    memory: str | None = None
    upload_seconds: float | None = None
    state: str | None = None
    earlier_since: int | None = None
    earlier_memory: str | None = None

    def memory_of(self, since: int | None) -> str | None:
        """Return the name of the file with the memory of a counted update."""
        names = {self.earlier_since: self.earlier_memory, self.since: self.memory}
        return None if since is None else names.get(since)


class Outbox:
    """The update on its way, and the memory, in a folder that no other process uses."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pending = folder / "upload.json"
        self._kept = folder / "kept.json"
        self._tidy()

    def pending(self) -> Pending | None:
        """Return the update without receipt; None if there is none."""
        return read_json(self._pending, Pending)

    def body(self, visit: int) -> Path:
        """Return the file with a visit's body."""
        return self._folder / f"update-{visit}"

    def kept(self) -> Kept:
        """Return the client's knowledge of its counted updates."""
        return read_json(self._kept, Kept) or Kept()

    def memory(self, since: int | None, length: int, dtype: DTypeLike = np.float32) -> NDArray[Any] | None:
        """Return the client's memory, ``(d,)``; None if there is none.

        If the client's last counted update did not start from ``since``, the memory belongs to another update than the
        server's: then None, too.
        """
        name = self.kept().memory_of(since)
        if name is None:
            return None
        try:
            memory = load_file(self._folder / name)["memory"]
        except (OSError, SafetensorError, LookupError):
            return None
        return memory if memory.shape == (length,) and memory.dtype == dtype else None

    def state(self) -> bytes | None:
        """Return the user's client's state of its last counted update."""
        name = self.kept().state
        if name is None:
            return None
        try:
            return (self._folder / name).read_bytes()
        except FileNotFoundError:
            raise OffbeatError(
                f"{self._folder} has lost {name}, the state of the client: take another folder, and enrol again"
            ) from None

    def put(
        self,
        visit: Visit,
        write_body: Callable[[Path], None],
        memory: NDArray[np.float32] | None,
        announce: Callable[[Path], dict[str, Any]],
        state: bytes | None = None,
    ) -> Pending:
        """Keep a finished update; it survives any kill from here on.

        ``write_body`` writes the body to a path, and ``announce`` returns its header ``Offbeat-Update``. ``memory``,
        ``(d,)``, is the client's memory once the update counts, and ``state`` the user's client's state.
        """
        body = self.body(visit.number)
        _write(body, write_body)
        self._write_memory(visit.number, memory)
        return self._keep(visit, memory is not None, announce(body), state)

    def put_delta(self, visit: Visit, vector: NDArray[np.float32], delta: Delta, state: bytes | None = None) -> Pending:
        """Keep the delta of a private update; it survives any kill from here on.

        If ``delta`` has ``since``, its share will have a memory.
        """
        _write(self._delta_path(visit.number), lambda path: vector.astype("<f4", copy=False).tofile(path))
        return self._keep(visit, "since" in delta, None, state, delta)

    def delta(self, pending: Pending) -> NDArray[np.float32]:
        """Return the delta of a private update, ``(d,)``."""
        return np.fromfile(self._delta_path(pending.visit), "<f4").astype(np.float32, copy=False)

    def put_share(
        self,
        pending: Pending,
        masked: NDArray[np.uint32],
        announcement: dict[str, Any],
        memory: NDArray[np.int32] | None = None,
    ) -> Pending:
        """Keep the share of a private update; it survives any kill from here on.

        ``memory``, ``(d,)``, is the client's memory once the share counts.
        """
        _write(self.body(pending.visit), lambda path: masked.astype("<u4", copy=False).tofile(path))
        self._write_memory(pending.visit, memory)
        return self._announce(replace(pending, announcement=announcement))

    def drop_share(self, pending: Pending) -> Pending:
        """Forget the share of a private update, whose delta stays."""
        return self._announce(replace(pending, announcement=None))

    def acknowledge(self, pending: Pending, counted: bool, upload_seconds: float | None) -> None:
        """Record the receipt of an update; memory and state change if it counted."""
        kept = self.kept()
        if counted:
            memory = self._memory_path(pending.visit).name if pending.has_memory else None
            base = None if pending.delta is None else pending.delta.get("since")
            kept = Kept(
                since=pending.version,
                memory=memory,
                upload_seconds=kept.upload_seconds,
                state=self._state_path(pending.visit).name if pending.has_state else kept.state,
                earlier_since=base,
                earlier_memory=kept.memory_of(base),
            )
        write_json(self._kept, asdict(replace(kept, upload_seconds=upload_seconds or kept.upload_seconds)))
        self.drop()

    def drop(self) -> None:
        """Forget the update without receipt, if there is one.

        Memory and state stay as they are.
        """
        remove_durably(self._pending)
        self._tidy()

    def _keep(
        self,
        visit: Visit,
        has_memory: bool,
        announcement: dict[str, Any] | None,
        state: bytes | None,
        delta: Delta | None = None,
    ) -> Pending:
        if state is not None:
            _write(self._state_path(visit.number), lambda path: path.write_bytes(state))
        facts = visit.number, visit.version, visit.length, visit.lease_seconds
        return self._announce(Pending(*facts, has_memory, announcement, delta, state is not None))

    def _announce(self, pending: Pending) -> Pending:
        write_json(self._pending, asdict(pending))
        return pending

    def _delta_path(self, visit: int) -> Path:
        return self._folder / f"delta-{visit}"

    def _memory_path(self, visit: int) -> Path:
        return self._folder / f"memory-{visit}.safetensors"

    def _write_memory(self, visit: int, memory: NDArray[Any] | None) -> None:
        if memory is not None:
            _write(self._memory_path(visit), lambda path: save_file({"memory": memory}, path))

    def _state_path(self, visit: int) -> Path:
        return self._folder / f"state-{visit}"

    def _tidy(self) -> None:
        pending, kept = self.pending(), self.kept()
        needed = {kept.memory, kept.earlier_memory, kept.state}
        if pending is not None:
            visit = pending.visit
            paths = self.body(visit), self._memory_path(visit), self._delta_path(visit), self._state_path(visit)
            needed |= {path.name for path in paths}
        for kind in ("update", "memory", "delta", "state"):
            for path in (*self._folder.glob(f"{kind}-*"), *self._folder.glob(f".{kind}-*")):
                if path.name not in needed:
                    path.unlink()


def _write(path: Path, write: Callable[[Path], object]) -> None:
    partial = partial_path(path)
    partial.unlink(missing_ok=True)  # a leftover would keep its own permissions
    partial.touch(0o600, exist_ok=False)
    try:
        write(partial)
    except SafetensorError as error:  # its error for a full disk
        raise OffbeatError(f"cannot write {path}: {error}") from None
    replace_durably(partial, path)
