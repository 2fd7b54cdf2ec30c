"""What a user sees while runs go on."""

from types import TracebackType
from typing import Self

from rich import progress as rich_progress
from rich.console import Console

from offbeat.experiments.sections import StopSection
from offbeat.simulation.records import Evaluation


class Progress:
    """A bar for each run: how far it is, its accuracy and its client updates so far.

    Args:
        console: Where to draw; on anything but a terminal only a line a finished run is written.
        stop: When the runs end.
    """

    def __init__(self, console: Console, stop: StopSection) -> None:
        self._console = console
        self._stop = stop
        self._bars = rich_progress.Progress(
            rich_progress.TextColumn("{task.description}"),
            rich_progress.BarColumn(bar_width=None),
            rich_progress.TaskProgressColumn(),
            rich_progress.TextColumn("{task.fields[state]}"),
            rich_progress.TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
            expand=True,
        )
        self._label = ""
        self._state = ""
        self._task = rich_progress.TaskID(0)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def say(self, line: str) -> None:
        """Write one line."""
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def begin(self, label: str, seed: int) -> None:
        """Show that a run has begun."""
        self._label = f"{label}, seed {seed}"
        self._task = self._bars.add_task(self._label, total=1.0, state="")

    def advance(self, evaluation: Evaluation) -> None:
        """Show how far the run is."""
        self._state = f"{evaluation.accuracy:.1%} after {evaluation.counted:,} updates"
        self._bars.update(self._task, completed=self._share(evaluation), state=self._state)

    def end(self) -> None:
        """Show that the run is over."""
        self._bars.update(self._task, completed=1.0)
        if not self._console.is_terminal:
            self.say(f"{self._label}: {self._state}")

    def _share(self, evaluation: Evaluation) -> float:
        """Return how much of the way to the nearest end is done, 0 … 1."""
        ways = [
            (evaluation.seconds, self._stop.virtual_seconds),
            (evaluation.version, self._stop.versions),
            (evaluation.counted, self._stop.updates),
        ]
        return min(1.0, max(done / end for done, end in ways if end is not None))
