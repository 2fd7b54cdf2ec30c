"""Progress bars of runs."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Self

from rich import progress as rich_progress
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

from offbeat import units
from offbeat.config.experiment_sections import StopSection
from offbeat.simulation.totals import Evaluation

_COLUMNS_FOR_CTRL_C = 4  # in which a terminal shows ^C, twice


class _Times(rich_progress.ProgressColumn):
    """The time that a task has taken, and the time that is left."""

    def render(self, task: rich_progress.Task) -> str:
        left = "…" if task.time_remaining is None else f"{timedelta(seconds=int(task.time_remaining))}"
        return f"{timedelta(seconds=int(task.elapsed or 0))}, {left} left"


@dataclass
class _Narrow:
    """Content that is narrower than the terminal.

    With ^C after a full line, the terminal would begin another one, and the next drawing would not cover this one.
    """

    content: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        return console.render(self.content, options.update_width(max(1, options.max_width - _COLUMNS_FOR_CTRL_C)))


class _Bars(rich_progress.Progress):
    def get_renderable(self) -> RenderableType:
        return _Narrow(super().get_renderable())


@dataclass
class _Bar:
    task: rich_progress.TaskID
    state: str = ""
    share: float = 0.0


class Progress:
    """A bar for each run and one for all together; a line for each finished run.

    Bars are drawn on a terminal only. They show a metric, or the test loss if its name is None. ``runs`` is the total
    number of runs if that is known at the start.
    """

    def __init__(self, console: Console, stop: StopSection, metric: str | None, runs: int = 0) -> None:
        self._console = console
        self._stop = stop
        self._metric = metric
        self._bars = _Bars(
            rich_progress.TextColumn("{task.description}"),
            rich_progress.BarColumn(bar_width=None),
            rich_progress.TaskProgressColumn(),
            rich_progress.TextColumn("{task.fields[state]}"),
            _Times(),
            console=console,
            disable=not console.is_terminal,
            expand=True,
            transient=True,
            speed_estimate_period=3600,  # evaluations may be far apart
        )
        self._running: dict[tuple[str, int], _Bar] = {}
        self._all: rich_progress.TaskID | None = None
        self._expected = runs
        self._is_total_known = runs > 0
        self._ended = 0
        self._warned: set[str] = set()

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self._bars.disable:  # Rich 13 would print an empty line
            self._bars.stop()

    def say(self, line: str) -> None:
        """Write one line."""
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def warn(self, line: str) -> None:
        """Write one line, once."""
        if line not in self._warned:
            self._warned.add(line)
            self.say(line)

    def expect(self, runs: int) -> None:
        """Add runs to the total, unless that was known before."""
        if not self._is_total_known:
            self._expected += runs
        if self._expected > 1:
            if self._all is None:
                self._all = self._bars.add_task("all runs", state="")
            self._bars.update(self._all, total=self._expected)
            self._show_all()

    def begin(self, label: str, seed: int) -> None:
        """Show that a run has begun."""
        task = self._bars.add_task(f"{label}, seed {seed}", total=1.0, state="")
        self._running[label, seed] = _Bar(task)

    def advance(self, label: str, seed: int, evaluation: Evaluation) -> None:
        """Show how far a run is."""
        bar = self._running[label, seed]
        bar.state = f"{self._value(evaluation)} after {evaluation.counted:,} updates"
        bar.share = self._share(evaluation)
        self._bars.update(bar.task, completed=bar.share, state=bar.state)
        self._show_all()

    def end(self, label: str, seed: int) -> None:
        """Show that a run has ended."""
        bar = self._running.pop((label, seed))
        self._bars.remove_task(bar.task)
        self._ended += 1
        self._show_all()
        self.say(f"{label}, seed {seed}: {bar.state}")

    def _show_all(self) -> None:
        if self._all is not None:
            done = self._ended + sum(bar.share for bar in self._running.values())
            self._bars.update(self._all, completed=done, state=f"{self._ended} of {self._expected} done")

    def _value(self, evaluation: Evaluation) -> str:
        if self._metric is None or self._metric not in evaluation.metrics:
            return f"loss {evaluation.loss:.4g}"
        value = evaluation.metrics[self._metric]
        return units.percent(value) if self._metric == "accuracy" else f"{self._metric} {value:.4g}"

    def _share(self, evaluation: Evaluation) -> float:
        """Return the share of the run that is done, 0 … 1."""
        limits = [
            (evaluation.seconds, self._stop.virtual_seconds),
            (evaluation.version, self._stop.versions),
            (evaluation.counted, self._stop.updates),
        ]
        return min(1.0, max(done / end for done, end in limits if end is not None))
