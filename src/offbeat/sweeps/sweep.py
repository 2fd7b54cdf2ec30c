"""A sweep: trials in batches, until each algorithm has had all of its own."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from offbeat_core.errors import OffbeatError

from offbeat.config.experiment_file import Experiment, experiment_of
from offbeat.config.experiment_sections import ALTERNATIVES
from offbeat.config.set_option import read_changed
from offbeat.runs.directory import lock_folder
from offbeat.runs.progress import Progress
from offbeat.runs.run_all import check_runs, fallback_of, load_data, run_all
from offbeat.runs.worker_processes import Workers
from offbeat.sweeps.record import Searched, write_record
from offbeat.sweeps.search import Search, check_optuna, open_storage, remove_sweep
from offbeat.sweeps.search_space import Over, Space, corners, search_spaces
from offbeat.sweeps.trials import (
    Point,
    Trial,
    at_point,
    in_words,
    measure_name,
    trial_label,
    trial_of,
    trials_experiment,
)
from offbeat.worlds.workload import with_default_metrics


@dataclass(frozen=True)
class Sweep:
    """An experiment's file, and the space that is searched for each label.

    ``trials`` is the number of trials of each label; a space with fewer points has one trial for each of these.
    ``first`` are the points of the first trials; those of other labels are drawn. With a ``target`` trials are compared
    as ``rank_score`` says.
    """

    path: Path
    table: Mapping[str, Any]
    experiment: Experiment
    overs: Sequence[Over]
    spaces: Mapping[str, Space]
    trials: int
    first: Mapping[str, Point] = field(default_factory=dict[str, Point])
    target: float | None = None

    @classmethod
    def of(
        cls, path: Path, changes: Sequence[str], overs: Sequence[Over], labels: Sequence[str], trials: int
    ) -> "Sweep":
        """Return the sweep over a file; every end of a range and every choice is valid.

        ``changes`` are those of ``--set``; ``labels`` are the algorithms, all if there are none.
        """
        table = read_changed(path, changes, ALTERNATIVES)
        experiment = experiment_of(table, path)
        spaces = search_spaces(table, overs, labels or list(experiment.algorithms), path)
        return cls(path, {"name": experiment.name, **table}, experiment, overs, spaces, trials)

    @property
    def searched(self) -> Searched:
        """The part of it that its folder records."""
        own = self.experiment
        return Searched(
            own.name, measure_name(own), own.better, tuple(own.seeds), self.trials, self.spaces, self.target
        )

    def carry_out(
        self, folder: Path, progress: Callable[[int], Progress], *, jobs: int = 1, fresh: bool = False
    ) -> dict[str, list[Trial]]:
        """Run all trials, each with all seeds, and return them by label, in order.

        ``progress`` makes the display of so many runs. Each batch has ``jobs`` trials of each label, and is chosen from
        the trials of all batches before. A sweep that was killed resumes; with ``fresh`` it starts anew.
        """
        check_optuna()  # before anything is removed, loaded or run
        with lock_folder(folder, ".sweep.lock"):
            if fresh:
                remove_sweep(folder, list(self.spaces))
            display = progress(self.searched.runs - self._finished(folder))
            shared = self._shared_settings(display)
            searches = self._searches(folder)
            known = {label: len(search.points) for label, search in searches.items()}
            done: dict[str, list[Trial]] = {label: [] for label in self.spaces}
            write_record(self.searched, done, folder)
            with Workers(jobs) as workers:
                while True:
                    batch = {label: search.batch(len(done[label]), jobs) for label, search in searches.items()}
                    if not any(batch.values()):
                        return done
                    for label, points in batch.items():
                        for number, point in enumerate(points, len(done[label])):
                            if number >= known[label]:
                                display.say(f"{trial_label(label, number)}: {in_words(point)}")
                    for trial in self._run(batch, done, shared, folder, display, workers):
                        done[trial.label].append(trial)
                        searches[trial.label].tell(trial.number, trial.score)
                    write_record(self.searched, done, folder)

    def _searches(self, folder: Path) -> dict[str, Search]:
        storage, seed = open_storage(folder), self.experiment.seeds[0]
        return {
            label: Search(
                storage, folder, label, space, self.overs, trials=self.trials, seed=seed, first=self.first.get(label)
            )
            for label, space in self.spaces.items()
        }

    def _finished(self, folder: Path) -> int:
        labels = [trial_label(label, number) for label in self.spaces for number in range(self.searched.number(label))]
        return sum((folder / f"{label}-seed{seed}").is_dir() for label in labels for seed in self.experiment.seeds)

    def _shared_settings(self, display: Progress) -> dict[str, Any]:
        """Check that the corners of all spaces can run; return settings of all trials.

        The settings are a trainer that suits all trials, and a data set that is on this machine.
        """
        dataset = load_data(self.experiment, display.say)
        section = self.experiment.data
        data: dict[str, Any] = {}
        if dataset.name != section.name:
            data["data"] = fallback_of(section).model_dump(exclude_none=True, exclude_defaults=True)
        metrics = with_default_metrics(self.experiment, dataset).metrics
        if metrics != self.experiment.metrics:
            raise OffbeatError(
                f"evaluate.metrics: name the metric by which trials are compared; for these labels it would be "
                f"{metrics[0] if metrics else 'the test loss'}"
            )
        trainers: set[str] = set()
        for label, space in self.spaces.items():
            for point in corners(space):
                algorithms = {label: at_point(self.table, label, point)}
                experiment = experiment_of({**self.table, **data, "algorithms": algorithms}, self.path)
                trainers.add(check_runs(experiment, [label], dataset, display.warn).trainer)
        return {**data, "trainer": "loop" if "loop" in trainers else trainers.pop()}

    def _run(
        self,
        batch: Mapping[str, Sequence[Point]],
        done: Mapping[str, Sequence[Trial]],
        shared: Mapping[str, Any],
        folder: Path,
        display: Progress,
        workers: Workers,
    ) -> Iterator[Trial]:
        """Run a batch, and yield its trials."""
        points = {label: dict(enumerate(batch[label], len(done[label]))) for label in batch if batch[label]}
        experiment = trials_experiment(self.table, points, self.path, shared)
        runs = run_all(
            experiment,
            list(experiment.algorithms),
            folder,
            display,
            jobs=workers.jobs,
            workers=workers,
            keep_diverged=True,
        )
        for label, numbered in points.items():
            for number, point in numbered.items():
                own = [run for run in runs if run.label == trial_label(label, number)]
                yield trial_of(self.experiment, label, number, point, own, self.target)
