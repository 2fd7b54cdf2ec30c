"""The course of the benchmark: tuning, then the seeds of the comparison."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offbeat.benchmark.catalogue import TUNING_SEED, Entry
from offbeat.benchmark.world import World
from offbeat.config.experiment_file import Experiment
from offbeat.data.dataset import Dataset
from offbeat.runs.directory import Run
from offbeat.runs.progress import Progress
from offbeat.runs.run_all import load_data, run_all
from offbeat.sweeps.proposals import check_optuna, next_points
from offbeat.sweeps.trials import Point, Trial, at_point, best_of, trial_label, trial_of
from offbeat.worlds.simulation import build_simulation

TRIALS = 10  # Optuna draws so many at random, so all of them are known before the first run
_TUNING_SHARE = 0.5  # of the world's length
_MEASURED_SHARE = 0.1


@dataclass(frozen=True)
class Plan:
    """The runs of one world.

    Attributes:
        world: The world.
        entries: Its algorithms.
        seeds: The seeds of the comparison.
        trials: Trials of each algorithm.
        folder: The folder of its runs.
    """

    world: World
    entries: Sequence[Entry]
    seeds: Sequence[int]
    trials: int
    folder: Path

    def points(self, entry: Entry) -> list[Point]:
        """Return the points of an algorithm's trials."""
        return next_points(entry.space, [], self.trials, self.trials, TUNING_SEED)

    @property
    def runs(self) -> list[str]:
        """The names of all runs."""
        trials = [trial_label(entry.label, n) for entry in self.entries for n in range(len(self.points(entry)))]
        return [
            *(f"{label}-seed{TUNING_SEED}" for label in trials),
            *(f"{entry.label}-seed{seed}" for entry in self.entries for seed in self.seeds),
        ]

    @property
    def left(self) -> int:
        """The number of runs that are not finished."""
        return sum(not (self.folder / name).is_dir() for name in self.runs)

    def check(self) -> None:
        """Check that Optuna is installed, if points must be drawn."""
        check_optuna({entry.label: entry.space for entry in self.entries}, self.trials)

    def expected_seconds(self, say: Callable[[str], None]) -> float:
        """Return the processor time of all runs, by a short run of each algorithm."""
        total, dataset = 0.0, None
        for entry in self.entries:
            points = self.points(entry)
            algorithms = {entry.label: _at(self.world, entry, points[0])}
            experiment = self.world.experiment(algorithms, [TUNING_SEED], _MEASURED_SHARE, entry.server)
            dataset = dataset or load_data(experiment, say)
            start, length = _measure(experiment, entry.label, dataset)
            trials = len(points)
            total += (trials + len(self.seeds)) * start + (trials * _TUNING_SHARE + len(self.seeds)) * length
        return total


def _measure(experiment: Experiment, label: str, dataset: Dataset) -> tuple[float, float]:
    """Return the processor seconds of a run's start, and of the world's whole length."""
    began = time.process_time()
    with experiment.accelerator().numerics():
        simulation = build_simulation(experiment, label, experiment.seeds[0], dataset)
        started = time.process_time()
        while not simulation.finished:
            simulation.step()
        simulation.close()
    return started - began, (time.process_time() - started) / _MEASURED_SHARE


@dataclass(frozen=True)
class Tuned:
    """An algorithm at the best of its trials, and its runs."""

    entry: Entry
    trials: Sequence[Trial]
    best: Trial
    runs: Sequence[Run]


def carry_out(plan: Plan, progress: Callable[[Experiment], Progress], *, jobs: int, fresh: bool) -> list[Tuned]:
    """Tune all algorithms, run each at its best point, and return them in order.

    A trial's score is that of ``offbeat sweep``. Finished runs are kept and unfinished ones resumed.
    """
    tuned: dict[str, Tuned] = {}
    for server, entries in _by_server(plan.entries):
        points = {entry.label: plan.points(entry) for entry in entries}
        tables = {
            trial_label(entry.label, number): {"algorithm": entry.label, **_at(plan.world, entry, point)}
            for entry in entries
            for number, point in enumerate(points[entry.label])
        }
        tuning = plan.world.experiment(tables, [TUNING_SEED], _TUNING_SHARE, server)
        runs = _run(tuning, plan, progress, jobs=jobs, fresh=fresh)
        trials = {
            entry.label: [
                trial_of(tuning, entry.label, number, point, runs[trial_label(entry.label, number)])
                for number, point in enumerate(points[entry.label])
            ]
            for entry in entries
        }
        best = {label: own[best_of([trial.score for trial in own])] for label, own in trials.items()}
        chosen = {entry.label: _at(plan.world, entry, best[entry.label].point) for entry in entries}
        final = plan.world.experiment(chosen, plan.seeds, 1.0, server)
        runs = _run(final, plan, progress, jobs=jobs, fresh=fresh)
        for entry in entries:
            label = entry.label
            tuned[label] = Tuned(entry, trials[label], best[label], runs[label])
    return [tuned[entry.label] for entry in plan.entries]


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
