"""The record of a sweep: its points, written before their runs begin."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from offbeat_core.errors import OffbeatError
from offbeat_core.files import write_durably

from offbeat.runs import directory as run_directory
from offbeat.sweeps.over import Over
from offbeat.sweeps.trials import Point

_FILE = "trials.json"


class Record:
    """The file ``trials.json`` of a sweep's folder.

    Attributes:
        points: The points of each label, in order.
    """

    def __init__(self, folder: Path, overs: Sequence[Over], labels: Sequence[str]) -> None:
        self._path = folder / _FILE
        self._over = [over.text for over in overs]
        self.points: dict[str, list[Point]] = {label: [] for label in labels}
        if self._path.exists():
            self._read()

    def _read(self) -> None:
        again = "choose another folder with --output, or replace it with --fresh"
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
            over, points = list(content["over"]), dict(content["points"])
            if not all(isinstance(point, dict) for one in points.values() for point in one):
                raise TypeError
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            raise OffbeatError(f"{self._path} is broken: {again}") from None
        if sorted(over) != sorted(self._over):
            raise OffbeatError(f"{self._path.parent} holds a sweep over {', '.join(over)}: {again}")
        self.points |= points

    def add(self, points: Mapping[str, Sequence[Point]]) -> None:
        """Add points, on disk."""
        for label, more in points.items():
            self.points[label] += more
        with run_directory.disk_errors(str(self._path), "choose another folder with --output"):
            self._write()

    def remove(self, labels: Sequence[str]) -> None:
        """Remove the points of labels, on disk."""
        self.points = {label: points for label, points in self.points.items() if label not in labels}
        if self.points:
            self._write()
        else:
            self._path.unlink(missing_ok=True)

    def _write(self) -> None:
        content = json.dumps({"over": self._over, "points": self.points}, indent=1) + "\n"
        write_durably(self._path, content.encode())


def remove_sweep(folder: Path, overs: Sequence[Over], labels: Sequence[str]) -> None:
    """Remove the runs of these labels' trials, then their points.

    A record that is broken, or of a sweep over something else, is removed whole.
    """
    is_trial = re.compile(rf"({'|'.join(map(re.escape, labels))}) \d+-seed\d").match
    with run_directory.disk_errors(f"into {folder}", "choose another folder with --output"):
        for path in filter(lambda path: is_trial(path.name), list(folder.iterdir())):
            run_directory.remove(path)
        try:
            record = Record(folder, overs, ())
        except OffbeatError:
            (folder / _FILE).unlink()
        else:
            record.remove(labels)
