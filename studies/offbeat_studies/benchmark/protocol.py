"""The course of the benchmark: tuning, then the seeds of the comparison."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offbeat.config.experiment_file import Experiment
from offbeat.data.dataset import Dataset
from offbeat.runs.directory import Run
from offbeat.runs.progress import Progress
from offbeat.runs.run_all import load_data, run_all
from offbeat.simulation.training_queue import DivergedError
from offbeat.sweeps.trials import Point, Trial, at_point, best_of, score_of, trial_label
from offbeat.worlds.simulation import build_simulation
from offbeat_studies.benchmark.catalogue import TUNING_SEED, Entry
from offbeat_studies.benchmark.measures import Curve, accuracy_at
from offbeat_studies.benchmark.spread_points import spread_points
from offbeat_studies.benchmark.world import World

_TUNING_SHARE = 0.5  # of the world's length
_MEASURED_SHARE = 0.1


@dataclass(frozen=True)
class Plan:
    """The runs of one world.

    Attributes:
        world: The world.
        entries: Its algorithms.
        seeds: The seeds of the comparison.
        folder: The folder of its runs.
    """

    world: World
    entries: Sequence[Entry]
    seeds: Sequence[int]
    folder: Path

    def points(self, entry: Entry) -> list[Point]:
        """Return the points that an algorithm is tuned over."""
        return list(spread_points(entry.space, self.world.trials, TUNING_SEED))

    def trial_points(self, entry: Entry) -> list[Point]:
        """Return the points of an algorithm's trials; none if there is nothing to choose."""
        points = self.points(entry)
        return points if len(points) > 1 else []

    @property
    def runs(self) -> list[str]:
        """The names of all runs."""
        trials = [trial_label(entry.label, n) for entry in self.entries for n in range(len(self.trial_points(entry)))]
        return [
            *(f"{label}-seed{TUNING_SEED}" for label in trials),
            *(f"{entry.label}-seed{seed}" for entry in self.entries for seed in self.seeds),
        ]

    @property
    def left(self) -> int:
        """The number of runs that are not finished."""
        return sum(not (self.folder / name).is_dir() for name in self.runs)

    def expected_seconds(self, say: Callable[[str], None]) -> float:
        """Return the processor time of all runs, by a short run of each algorithm."""
        total, dataset = 0.0, None
        for entry in self.entries:
            points = self.points(entry)
            algorithms = {entry.label: _at(self.world, entry, points[0])}
            experiment = self.world.experiment(algorithms, [TUNING_SEED], _MEASURED_SHARE, entry.server)
            dataset = dataset or load_data(experiment, say)
            start, length = _measure(experiment, entry.label, dataset)
            trials = len(self.trial_points(entry))
            total += (trials + len(self.seeds)) * start + (trials * _TUNING_SHARE + len(self.seeds)) * length
        return total


def _measure(experiment: Experiment, label: str, dataset: Dataset) -> tuple[float, float]:
    """Return the processor seconds of a run's start, and of the world's whole length.

    A run that diverges is measured until then.
    """
    began = time.process_time()
    share = _MEASURED_SHARE
    with (
        experiment.accelerator().numerics(),
        closing(build_simulation(experiment, label, experiment.seeds[0], dataset)) as simulation,
    ):
        started = time.process_time()
        try:
            while not simulation.finished:
                simulation.step()
        except DivergedError:
            assert experiment.stop.virtual_seconds is not None  # every world has a length
            share *= simulation.diverged(()).seconds / experiment.stop.virtual_seconds
    took = time.process_time() - started
    # A run that diverges at its first instant has no length to scale.
    return started - began, took / share if share else took


@dataclass(frozen=True)
class Tuned:
    """An algorithm's trials, the point that was chosen, and its runs there."""

    entry: Entry
    trials: Sequence[Trial]
    point: Point
    runs: Sequence[Run]


def carry_out(plan: Plan, progress: Callable[[Experiment], Progress], *, jobs: int, fresh: bool) -> list[Tuned]:
    """Tune all algorithms, run each at its best point, and return them in order.

    A trial's score is the accuracy by which algorithms are compared, at half the length. Finished runs are kept and
    unfinished ones resumed.
    """

    def run(experiment: Experiment) -> dict[str, list[Run]]:
        return _run(experiment, plan, progress, jobs=jobs, fresh=fresh)

    tuned: dict[str, Tuned] = {}
    for server, entries in _by_server(plan.entries):
        trials = _tune(plan, entries, server, run)
        points = {
            entry.label: _best(own).point if (own := trials[entry.label]) else plan.points(entry)[0]
            for entry in entries
        }
        tables = {entry.label: _at(plan.world, entry, points[entry.label]) for entry in entries}
        runs = run(plan.world.experiment(tables, plan.seeds, 1.0, server))
        for entry in entries:
            label = entry.label
            tuned[label] = Tuned(entry, trials[label], points[label], runs[label])
    return [tuned[entry.label] for entry in plan.entries]


def _tune(
    plan: Plan,
    entries: Sequence[Entry],
    server: Mapping[str, Any],
    run: Callable[[Experiment], dict[str, list[Run]]],
) -> dict[str, list[Trial]]:
    """Return the trials of each label."""
    points = {entry.label: plan.trial_points(entry) for entry in entries}
    tables = {
        trial_label(entry.label, number): {"algorithm": entry.label, **_at(plan.world, entry, point)}
        for entry in entries
        for number, point in enumerate(points[entry.label])
    }
    if not tables:
        return {label: [] for label in points}
    tuning = plan.world.experiment(tables, [TUNING_SEED], _TUNING_SHARE, server)
    runs = run(tuning)
    return {
        label: [
            _trial(label, number, point, runs[trial_label(label, number)][0], plan.world.seconds * _TUNING_SHARE)
            for number, point in enumerate(own)
        ]
        for label, own in points.items()
    }


def _trial(label: str, number: int, point: Point, run: Run, seconds: float) -> Trial:
    curve = Curve(run.seed, {"seconds": run.history["seconds"]}, run.history["accuracy"])
    value = accuracy_at(curve, "seconds", seconds)
    return Trial(label, number, point, value, score_of(value, higher_is_better=True))


def _best(trials: Sequence[Trial]) -> Trial:
    return trials[best_of([trial.score for trial in trials])]


def _at(world: World, entry: Entry, point: Point) -> dict[str, Any]:
    return at_point({**world.table, "algorithms": {entry.label: entry.table}}, entry.label, point)


def _by_server(entries: Sequence[Entry]) -> Iterator[tuple[Mapping[str, Any], list[Entry]]]:
    """Yield the algorithms that can share an experiment."""
    sections: list[Mapping[str, Any]] = []
    for entry in entries:
        if entry.server not in sections:
            sections.append(entry.server)
    for section in sections:
        yield section, [entry for entry in entries if entry.server == section]


def _run(
    experiment: Experiment, plan: Plan, progress: Callable[[Experiment], Progress], *, jobs: int, fresh: bool
) -> dict[str, list[Run]]:
    labels = list(experiment.algorithms)
    runs = run_all(experiment, labels, plan.folder, progress(experiment), jobs=jobs, fresh=fresh, keep_diverged=True)
    found: dict[str, list[Run]] = {label: [] for label in labels}
    for run in runs:
        found[run.label].append(run)
    return found
