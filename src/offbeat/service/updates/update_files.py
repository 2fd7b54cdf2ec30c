"""References to the files of updates, which tell when a file can be deleted."""

import weakref
from pathlib import Path

from offbeat.service.updates.update_body import StoredUpdate


class UpdateFiles:
    """The files of updates, with the references to each.

    For each file: the last log record that refers to it, and the updates in memory that lie in it.
    """

    def __init__(self) -> None:
        self._files: dict[Path, tuple[int, list[weakref.ref[StoredUpdate]]]] = {}

    def __contains__(self, path: Path) -> bool:
        """Return whether a file is still referred to."""
        return path in self._files

    def add(self, number: int, update: StoredUpdate) -> None:
        """Keep an update's file while a log record or an object in memory needs it.

        The log record is ``number``.
        """
        last, references = self._files.get(update.path, (0, []))
        references.append(weakref.ref(update))
        self._files[update.path] = (max(last, number), references)

    def forget(self, number: int) -> list[Path]:
        """Forget and return the files that are no longer needed.

        These have neither a record after ``number`` nor an update in memory.
        """
        unused: list[Path] = []
        for path, (last, references) in list(self._files.items()):
            alive = [reference for reference in references if reference() is not None]
            self._files[path] = (last, alive)
            if last <= number and not alive:
                unused.append(path)
                del self._files[path]
        return unused
