"""Advice for an experiment: what happens with its clients, and what to compare."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offbeat import units
from offbeat.advice.evidence import KINDS, Kind, Row, benchmark_rows, choice_without, kind_of, rank
from offbeat.advice.schedule_facts import ScheduleFacts, schedule_facts
from offbeat.advice.starting_points import with_starting_points
from offbeat.config.algorithm_table import as_inline_toml
from offbeat.config.experiment_file import Experiment
from offbeat.config.experiment_sections import AlgorithmTable
from offbeat.data.dataset import Dataset
from offbeat.report.population_statistics import population_statistics
from offbeat.report.table import NOTHING

FEW_VERSIONS = 20  # in the benchmark, FedLaAvg and MIFA ended clearly below FedAvg where they made 2 to 12
_CANDIDATES = 2  # beside FedAvg
_SEEDS = 5
AFTERWARDS = "in 3 worlds that were run afterwards 1, 1, 0"  # in the same order, by benchmarks/unseen_worlds.py


@dataclass(frozen=True)
class Advice:
    """The facts of each algorithm, and the algorithms to compare.

    Attributes:
        experiment: The experiment, with all algorithms that were looked at.
        kind: The kind of its clients.
        facts: Of each algorithm, those of the file first.
        own: The labels in the file.
        candidates: The labels to compare, the baseline FedAvg first.
        rows: The benchmark's rows.
    """

    experiment: Experiment
    kind: Kind
    facts: Sequence[ScheduleFacts]
    own: frozenset[str]
    candidates: Sequence[str]
    rows: Sequence[Row]

    def warnings(self) -> Iterator[str]:
        """Yield a sentence for each algorithm that cannot work here."""
        for one in self.facts:
            if why := _why_not(one, self.experiment):
                yield f"{one.label}: {why}."

    def reasons(self) -> Iterator[str]:
        """Yield a sentence or two for each candidate."""
        facts = {one.label: one for one in self.facts}
        for label in self.candidates:
            yield f"{label}: {_schedule(facts[label])}{self._evidence(label)}"

    def _evidence(self, label: str) -> str:
        name = self.experiment.name_of(label)
        found = [row for row in self.rows if row.algorithm == name and KINDS[row.world] == self.kind]
        if name == "fedavg":
            return " It is the baseline."
        if not found:
            return " The benchmark has no such clients with it: this is by its other worlds only."
        leads = (
            f"{100 * row.lead:+.1f} [{100 * row.low:+.1f}, {100 * row.high:+.1f}] points in {row.world}"
            for row in found
        )
        return f" In the benchmark, over FedAvg at equal time: {', '.join(leads)}."

    def certainty(self) -> str:
        """Return how often such a choice was right in the benchmark's worlds."""
        of = {(row.world, row.algorithm): row for row in self.rows}
        worlds = sorted({row.world for row in self.rows})
        chosen = [of[world, choice_without(self.rows, world)] for world in worlds]
        hits = {
            "the first choice": sum(row.is_near_best for row in chosen),
            "always FedBuff": sum(of[world, "fedbuff"].is_near_best for world in worlds),
            "always FedAvg": sum(of[world, "fedavg"].is_near_best for world in worlds),
        }
        counts = ", ".join(f"{name} {number}" for name, number in hits.items())
        return (
            f"How sure: with each of the {len(worlds)} worlds left out, not clearly below its best algorithm were: "
            f"{counts}; {AFTERWARDS}. So compare. Step sizes are rules of thumb: tune them, all by the same budget."
        )

    def settings(self) -> dict[str, str]:
        """Return the tables of candidates that the file does not have, as inline TOML."""
        return {label: _inline(self.experiment, label) for label in self.candidates if label not in self.own}

    def command(self, file: Path, changes: Sequence[str]) -> str:
        """Return the command that compares the candidates."""
        words = ["offbeat", "compare", str(file)]
        for change in changes:
            words += ["--set", change]
        for label, table in self.settings().items():
            words += ["--set", f"algorithms.{label}={table}"]
        if len(self.experiment.seeds) < _SEEDS and not any(change.startswith("seeds") for change in changes):
            words += ["--set", f"seeds={list(range(1, _SEEDS + 1))}"]
        for label in self.candidates:
            words += ["--algorithm", label]
        return shlex.join(words)


def advise(experiment: Experiment, dataset: Dataset) -> Advice:
    """Return the advice for an experiment's first seed."""
    statistics = population_statistics(experiment, dataset)
    own = frozenset(experiment.algorithms)
    added = {
        name: AlgorithmTable.model_validate(table)
        for name, table in with_starting_points(experiment, statistics).items()
    }
    experiment = experiment.model_copy(update={"algorithms": {**experiment.algorithms, **added}})
    facts = [schedule_facts(experiment, label, dataset) for label in experiment.algorithms]
    kind, rows = kind_of(statistics), benchmark_rows()
    return Advice(experiment, kind, facts, own, _candidates(experiment, facts, rows, kind), rows)


def _candidates(experiment: Experiment, facts: Sequence[ScheduleFacts], rows: Sequence[Row], kind: Kind) -> list[str]:
    """Return the label of FedAvg, if it can run, and those of the best that work here."""
    labels: dict[str, str] = {}  # by algorithm; the first label of each
    for one in facts:
        name = experiment.name_of(one.label)
        if not (one.problem if name == "fedavg" else _why_not(one, experiment)):
            labels.setdefault(name, one.label)
    baseline = labels.pop("fedavg", None)
    best = [labels[name] for name in rank(rows, kind, labels)[:_CANDIDATES]]
    return [*([baseline] if baseline else []), *best] or [facts[0].label]


def _why_not(one: ScheduleFacts, experiment: Experiment) -> str:
    """Return why an algorithm does not work here; empty if it does."""
    if one.problem:
        return one.problem
    if not one.counted:
        return "no update would count"
    versions = one.at_end(one.versions)
    if versions < min(FEW_VERSIONS, experiment.stop.versions or FEW_VERSIONS):
        return f"would make {versions:,} version{'s' * (versions != 1)} in {units.duration(one.seconds * one.scale)}"
    return ""


def _schedule(one: ScheduleFacts) -> str:
    waiting = NOTHING if one.waiting_share is None else units.percent(one.waiting_share)
    return f"{one.at_end(one.versions):,} versions, and clients wait {waiting} of their time."


def _inline(experiment: Experiment, label: str) -> str:
    table: Mapping[str, Any] = experiment.algorithms[label].hyper_parameters
    return as_inline_toml(dict(table)) if table else "{}"
