"""Tuning before a comparison: equal budgets of trials on a validation part."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offbeat_core.errors import OffbeatError

from offbeat.config.experiment_file import Experiment, experiment_of
from offbeat.config.experiment_sections import ALTERNATIVES, StopSection, metric_name
from offbeat.config.set_option import read_changed
from offbeat.runs import directory as run_directory
from offbeat.runs.progress import Progress
from offbeat.runs.tuning_record import (
    FOLDER,
    TrialResult,
    TunedLabel,
    TunedSetting,
    TuningRecord,
    read_tuning,
    write_tuning,
)
from offbeat.sweeps.result import best_trials, write_csv
from offbeat.sweeps.search import check_optuna
from offbeat.sweeps.search_space import Over, as_text
from offbeat.sweeps.sweep import Sweep
from offbeat.sweeps.trials import LAST, Trial, at_point, measure_name
from offbeat.sweeps.tuned_settings import edge_to_widen, tuned_spaces, with_explicit_staleness

SHARE = 0.5  # of the end of the runs
VALIDATION = 0.2  # of the training examples
_SEED = 1_000_000  # that nobody compares on; all trials have the same, which spares the noise between settings
_AGAIN = "choose another folder with --output, or replace it with --fresh"


@dataclass(frozen=True)
class Tuning:
    """A file's comparison, and the sweep that comes before it.

    The sweep's trials have one seed that the file does not have, end at a share of the file's end, and are evaluated on
    a validation part. The first of each algorithm has the file's settings.
    """

    path: Path
    table: Mapping[str, Any]
    experiment: Experiment
    sweep: Sweep

    @classmethod
    def of(
        cls, path: Path, changes: Sequence[str], overs: Sequence[Over], labels: Sequence[str], trials: int
    ) -> "Tuning":
        """Return the tuning of some of a file's algorithms, by so many trials each.

        ``changes`` are those of ``--set``; ``overs`` add to the settings that are searched, or replace their values.
        """
        table = read_changed(path, changes, ALTERNATIVES)
        experiment = experiment_of(table, path)
        if experiment.flower is not None:
            raise OffbeatError("--tune: the Flower app has the training data, so no validation part can be set aside")
        if experiment.data.validation is not None:
            raise OffbeatError("--tune sets aside a validation part of its own: leave data.validation out")
        table: dict[str, Any] = {"name": experiment.name, **with_explicit_staleness(table, experiment)}
        spaces = tuned_spaces(table, experiment, overs, labels, path)
        cut = {
            **table,
            "seeds": [_seed(experiment)],
            "data": {**table["data"], "validation": VALIDATION},
            "stop": {**table["stop"], **_cut(experiment.stop)},
        }
        sweep = Sweep(
            path,
            cut,
            experiment_of(cut, path),
            overs,
            {label: space for label, (space, _) in spaces.items()},
            trials,
            {label: point for label, (_, point) in spaces.items()},
            _target(experiment),
        )
        return cls(path, table, experiment, sweep)

    def carry_out(
        self, folder: Path, progress: Callable[[int], Progress], *, jobs: int = 1, fresh: bool = False
    ) -> Experiment:
        """Carry out all trials; return the file's experiment at the best settings.

        ``folder`` is that of the runs of this experiment; the trials' is ``tuning`` in it. A tuning that was killed
        resumes; with ``fresh`` it starts anew, and the runs are removed. ``progress`` and ``jobs`` are as for a sweep.

        Raises:
            OffbeatError: The folder holds another tuning, or runs without one.
        """
        check_optuna()  # before anything is removed
        asked = self._asked()
        with run_directory.lock_folder(folder):
            if fresh:
                _remove(folder, list(self.sweep.spaces))
            before = read_tuning(folder)
            if before is None and _runs_in(folder, list(self.sweep.spaces)):
                raise OffbeatError(f"{folder} holds runs that were not tuned: {_AGAIN}")
            if before is not None and _budget(before) != _budget(asked):
                raise OffbeatError(f"{folder} holds a tuning by {_budget(before)}: {_AGAIN}")
            if before is not None and before.asked() != asked:
                raise OffbeatError(f"{folder} holds a tuning of other values: {_AGAIN}")
            if before is None:
                write_tuning(folder, asked)
        trials = self.sweep.carry_out(folder / FOLDER, progress, jobs=jobs)
        write_csv(self.sweep.searched, trials, folder / FOLDER)
        best = best_trials(trials)
        write_tuning(folder, self._found(asked, trials, best))
        algorithms = {label: at_point(self.table, label, trial.point) for label, trial in best.items()}
        return experiment_of({**self.table, "algorithms": {**self.table["algorithms"], **algorithms}}, self.path)

    def _asked(self) -> TuningRecord:
        return TuningRecord(
            share=SHARE,
            validation=VALIDATION,
            seed=self.sweep.experiment.seeds[0],
            measure=measure_name(self.sweep.experiment),
            last=LAST,
            target=self.sweep.target,
            labels={
                label: TunedLabel(
                    trials=self.sweep.searched.number(label),
                    settings=[
                        TunedSetting(key=key, searched=as_text(values), untuned=self.sweep.first[label][key])
                        for key, values in space.items()
                    ],
                )
                for label, space in self.sweep.spaces.items()
            },
        )

    def _found(
        self, asked: TuningRecord, trials: Mapping[str, Sequence[Trial]], best: Mapping[str, Trial]
    ) -> TuningRecord:
        labels: dict[str, TunedLabel] = {}
        for label, tuned in asked.labels.items():
            point, space = best[label].point, self.sweep.spaces[label]
            settings = [
                setting.model_copy(
                    update={
                        "best": point[setting.key],
                        "edge": edge_to_widen(
                            self.table, label, setting.key, space[setting.key], point[setting.key], self.path
                        ),
                    }
                )
                for setting in tuned.settings
            ]
            labels[label] = TunedLabel(
                trials=tuned.trials, settings=settings, untuned=_result(trials[label][0]), best=_result(best[label])
            )
        return asked.model_copy(update={"labels": labels})


def _seed(experiment: Experiment) -> int:
    return next(seed for seed in range(_SEED, _SEED + len(experiment.seeds) + 1) if seed not in experiment.seeds)


def _cut(stop: StopSection) -> dict[str, Any]:
    """Return the limits of a trial."""
    cut: dict[str, Any] = {}
    if stop.virtual_seconds is not None:
        cut["virtual_seconds"] = stop.virtual_seconds * SHARE
    for key in ("versions", "updates"):
        if (limit := getattr(stop, key)) is not None:
            cut[key] = math.ceil(limit * SHARE)
    return cut


def _target(experiment: Experiment) -> float | None:
    """Return the target of the measure by which trials are compared, if there is one."""
    stop, evaluate = experiment.stop, experiment.evaluate
    if evaluate.target is not None:
        return evaluate.target
    first = metric_name(experiment.metrics[0]) if experiment.metrics else "loss"
    return stop.target if stop.metric in (None, first) else None


def _result(trial: Trial) -> TrialResult:
    return TrialResult(
        number=trial.number, value=trial.value if math.isfinite(trial.value) else None, seconds=trial.seconds
    )


def _budget(record: TuningRecord) -> str:
    numbers = sorted({one.trials for one in record.labels.values()})
    return f"{' and '.join(map(str, numbers))} trials of {', '.join(record.labels)}"


def _runs_in(folder: Path, labels: Sequence[str]) -> list[Path]:
    is_run = re.compile(rf"({'|'.join(map(re.escape, labels))})-seed\d+(\.unfinished)?").fullmatch
    return [path for path in folder.iterdir() if is_run(path.name)]


def _remove(folder: Path, labels: Sequence[str]) -> None:
    with run_directory.disk_errors(f"into {folder}", "choose another folder with --output"):
        for path in [*_runs_in(folder, labels), folder / FOLDER]:
            run_directory.remove(path)
