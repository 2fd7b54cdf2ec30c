"""Tuning in a report: what was searched and found, as sentences and a table."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table
from rich.text import Text

from offbeat import units
from offbeat.config.algorithm_table import as_inline_toml
from offbeat.report.metrics import Measure
from offbeat.runs.directory import Run
from offbeat.runs.settings import by_label
from offbeat.runs.tuning_record import TrialResult, TunedLabel, TuningRecord, tuning_of

COLUMNS = ("Algorithm", "Setting", "Searched", "In the file", "Best")


@dataclass(frozen=True)
class ReportedTuning:
    """The tuning of a report's labels, None for those that were not tuned."""

    tuned: Mapping[str, tuple[TuningRecord, TunedLabel] | None]
    measure: Measure

    @classmethod
    def of(cls, runs: Sequence[Run], measure: Measure) -> "ReportedTuning":
        """Return the tuning of the runs, whose main measure is ``measure``."""
        found = tuning_of(runs)
        return cls({label: found.get(label) for label in by_label(runs)}, measure)

    @property
    def is_any(self) -> bool:
        """True if an algorithm was tuned."""
        return any(self.tuned.values())

    @property
    def is_equal(self) -> bool:
        """True if all algorithms were tuned in the same way, by the same budget."""
        found = [one for one in self.tuned.values() if one is not None]
        ways = {(record.model_copy(update={"labels": {}}).model_dump_json(), own.trials) for record, own in found}
        return len(found) == len(self.tuned) and len(ways) == 1

    def sentences(self) -> Iterator[str]:
        """Yield what the finding says about it; nothing if nothing was tuned."""
        if not self.is_any:
            return
        trials = {label: one[1].trials if one else 0 for label, one in self.tuned.items()}
        if self.is_equal:
            number = next(iter(trials.values()))
            yield f"Tuned by {number} trials{' each' if len(trials) > 1 else ''}."
        else:
            budgets = ", ".join(f"{label} by {number or 'no'} trials" for label, number in trials.items())
            yield f"Tuned unequally: {budgets}."
        edges = [
            f"{label}'s {setting.key}"
            for label, _, tuned in self._found()
            for setting in tuned.settings
            if setting.edge
        ]
        if edges:
            yield f"Best at an edge of what was searched, so perhaps better beyond: {', '.join(edges)}."

    def how(self) -> str:
        """Return how trials were run and compared."""
        record = next(one[0] for one in self.tuned.values() if one)
        mean = f"the mean of the last {record.last} evaluations of {self.measure.title}"
        compared = mean
        if record.target is not None:
            compared = f"the time to {self.measure.at(record.target)}, or by {mean} where that was missed"
        end, part = units.level(record.share), units.level(record.validation)
        return (
            f"Trials had seed {record.seed:,} and ended at {end} of the runs' end. They are compared on a validation "
            f"part, {part} of the training examples, by {compared}; the results above are of other seeds and the test "
            "set. The first trial has the file's settings, so the best is never worse on the validation part. "
            "--over KEY=VALUES widens a range with the best at its edge."
        )

    def gains(self) -> Iterator[str]:
        """Yield for each algorithm what its best trial and the file's settings gave."""
        for label, record, tuned in self._found():
            if tuned.best is None or tuned.untuned is None:
                continue
            best = f"{label}: {self._write(tuned.best, record)} in the best of {tuned.trials} trials"
            if tuned.best.number == 0:
                yield f"{best}, the first, which has the file's settings."
            else:
                yield f"{best}, {self._write(tuned.untuned, record)} with the file's settings."

    def rows(self) -> list[tuple[str, ...]]:
        """Return a row of ``COLUMNS`` for each setting."""
        return [
            (
                label,
                setting.key,
                setting.searched,
                as_inline_toml(setting.untuned),
                f"{as_inline_toml(setting.best)}{', at an edge' if setting.edge else ''}",
            )
            for label, _, tuned in self._found()
            for setting in tuned.settings
        ]

    def table(self) -> Table:
        """Return the rows for the terminal."""
        table = Table(*COLUMNS, box=box.SIMPLE, pad_edge=False)
        for row in self.rows():
            # Text, because rich reads square brackets in a string as markup.
            table.add_row(*map(Text, row))
        return table

    def _found(self) -> Iterator[tuple[str, TuningRecord, TunedLabel]]:
        for label, one in self.tuned.items():
            if one is not None:
                yield label, *one

    def _write(self, result: TrialResult, record: TuningRecord) -> str:
        if result.seconds is not None and record.target is not None:
            return f"{self.measure.at(record.target)} after {units.duration(result.seconds)}"
        return "diverged" if result.value is None else self.measure.write(result.value)
