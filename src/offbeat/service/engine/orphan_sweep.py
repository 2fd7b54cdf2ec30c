"""Deletion of shared files that nothing names."""

import logging
from collections.abc import Awaitable, Callable, Set

from offbeat_core.serving.console_log import event

from offbeat.service.store.disk import UnreachableFilesError
from offbeat.service.store.shared_files import SharedFiles

_LOOK_SECONDS = 600.0  # between two looks
_AGE_SECONDS = 3600.0  # for which a file has had no name when it is deleted


class OrphanSweep:
    """Deletes files that killed servers left, once they are an hour old.

    The file of an update that has no row yet looks the same, so only files are deleted that had no name at a look an
    hour ago. The look is the leader's, by its own clock, and its successor begins anew.

    Args:
        shared: The files.
        needed: Returns the names of all files that the log or this server needs.
        confirm: Raises ``Refusal`` if another server leads, which may need others.
    """

    def __init__(
        self, shared: SharedFiles, needed: Callable[[], Set[str]], confirm: Callable[[], Awaitable[None]]
    ) -> None:
        self._shared = shared
        self._needed = needed
        self._confirm = confirm
        self._since: dict[str, float] = {}  # when a file was first seen without a name
        self._next_look = 0.0

    async def look(self, now: float) -> None:
        """Look if it is time to; ``now`` is in seconds."""
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_SECONDS
        try:
            listed = [name async for name in self._shared.names()]
            orphans = set(listed) - self._needed()
            self._since = {name: self._since.get(name, now) for name in orphans}
            old = [name for name, since in self._since.items() if now - since >= _AGE_SECONDS]
            if old:
                await self._confirm()
                await self._shared.delete(old)
                event("orphans_deleted", files=len(old))
        except UnreachableFilesError as error:  # the next look finds the same
            event("blobs_unavailable", logging.WARNING, problem=str(error))
