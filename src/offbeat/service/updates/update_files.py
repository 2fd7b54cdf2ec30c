"""Which files of updates are still needed."""

import weakref
from pathlib import Path

from offbeat.service.updates.update_body import StoredUpdate


class UpdateFiles:
    """Counts for each file the records of the log that refer to it, and whoever has an update that lies in it."""

    def __init__(self) -> None:
        self._files: dict[Path, tuple[int, list[weakref.ref[StoredUpdate]]]] = {}  # last record, and who needs it

    def __contains__(self, path: Path) -> bool:
        """Whether a file is needed."""
        return path in self._files

    def note(self, number: int, update: StoredUpdate) -> None:
        """Keep a file for as long as a record after the last checkpoint, or somebody who has the update, needs it.

        Args:
            number: The record that refers to it; 0 if none does yet.
            update: What is in the file.
        """
        last, references = self._files.get(update.path, (0, []))
        references.append(weakref.ref(update))
        self._files[update.path] = (max(last, number), references)

    def forget(self, number: int) -> list[Path]:
        """Forget, and return, the files that only records up to this number refer to."""
        gone: list[Path] = []
        for path, (last, references) in list(self._files.items()):
            alive = [reference for reference in references if reference() is not None]
            self._files[path] = (last, alive)
            if last <= number and not alive:
                gone.append(path)
                del self._files[path]
        return gone
