"""The search for one algorithm's best point: Optuna's study, in Optuna's storage."""

import importlib.util
import math
import os
import random
import re
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offbeat_core.errors import OffbeatError

from offbeat.runs import directory as run_directory
from offbeat.sweeps.search_space import Choices, Over, Space, Values, all_points, list_values, size_of
from offbeat.sweeps.trials import Point

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.storages import BaseStorage

_FILE = "optuna.journal"
_DIGITS = 4  # significant ones of a drawn number, so that settings can be read and pasted
_ATTEMPTS = 10  # to find a new point by its promise; as many later ones are drawn at random, then with all digits
_EXACT = "exact"
_AT_RANDOM = 10  # trials before Optuna's TPE begins to choose; until then values of few are taken in turn
_AGAIN = "choose another folder with --output, or replace it with --fresh"


class Search:
    """The trials of one label, in the ``storage`` of a sweep's folder.

    Points are on disk before their runs begin, and depend on the seed and on the scores of the trials before, so that a
    search that was killed resumes where it was. ``first`` is the first point, to the digit; without it, it is drawn.
    """

    def __init__(
        self,
        storage: "BaseStorage",
        folder: Path,
        label: str,
        space: Space,
        overs: Sequence[Over],
        *,
        trials: int,
        seed: int,
        first: Point | None = None,
    ) -> None:
        import optuna

        self._folder = folder
        self._space = space
        self._distributions = {key: _distribution(values) for key, values in space.items()}
        self._number = int(min(trials, size_of(space)))
        self._seed = seed
        self._first = first
        texts = sorted(over.text for over in overs)
        with _disk_errors(folder):
            self._study = optuna.create_study(
                storage=storage, study_name=label, direction="maximize", load_if_exists=True
            )
            before = self._study.user_attrs.get("over")
            if before is None:
                self._study.set_user_attr("over", texts)
            elif before != texts:
                raise OffbeatError(f"{folder} holds a sweep over {', '.join(before)}: {_AGAIN}")

    @property
    def points(self) -> list[Point]:
        """The points of all trials, in order."""
        return [point for point, _ in self._trials()]

    def batch(self, first: int, size: int) -> list[Point]:
        """Return the points from number ``first`` to the end of a batch.

        None are left after the last trial. Points that are stored come again. If the space has no more points than
        trials, these are its points in order. Otherwise Optuna's TPE chooses from the scores that it has been told. No
        point comes twice.
        """
        points = self.points
        end = min(self._number, math.ceil(max(len(points), first + 1) / size) * size)
        with _disk_errors(self._folder):
            while len(points) < end:
                points.append(self._new_point(points))
        return points[first:end]

    def tell(self, number: int, score: float) -> None:
        """Store a trial's score, unless it has one."""
        _, trial = self._trials()[number]
        with _disk_errors(self._folder):
            self._study.tell(trial, score, skip_if_finished=True)

    def _trials(self) -> list[tuple[Point, int]]:
        """Return each trial's point, and Optuna's number of it, without repeated points."""
        found: list[tuple[Point, int]] = []
        known: list[Point] = []
        for trial in self._study.get_trials(deepcopy=False):
            # A search that was killed may have begun a trial that has no values yet.
            is_whole = trial.params.keys() == self._space.keys()
            point = self._point(trial.params, is_exact=_EXACT in trial.user_attrs) if is_whole else None
            if point is not None and point not in known:
                known.append(point)
                found.append((point, trial.number))
        return found

    def _new_point(self, known: Sequence[Point]) -> Point:
        from optuna.trial import TrialState

        if not known and self._first is not None:
            self._study.enqueue_trial(self._parameters(self._first), user_attrs={_EXACT: True})
        elif self._number == size_of(self._space):
            point = next(point for point in all_points(self._space) if point not in known)
            self._study.enqueue_trial(self._parameters(point))
        attempt = 0
        while True:
            numbers = random.Random(f"{self._seed} {len(known)} {attempt}")
            self._study.sampler = self._sampler(known, attempt, numbers)
            trial = self._study.ask(self._distributions)
            is_exact = _EXACT in trial.user_attrs
            if attempt >= 2 * _ATTEMPTS:  # a narrow range has few numbers of so few digits
                is_exact = True
                trial.set_user_attr(_EXACT, True)
            point = self._point(trial.params, is_exact=is_exact)
            if point not in known:
                return point
            self._study.tell(trial, state=TrialState.FAIL)
            attempt += 1

    def _sampler(self, known: Sequence[Point], attempt: int, numbers: random.Random) -> "BaseSampler":
        """Return the sampler of the next point.

        At first it fixes each setting of few values to one that was tried least often.
        """
        from optuna.exceptions import ExperimentalWarning
        from optuna.samplers import PartialFixedSampler, RandomSampler, TPESampler

        seed = numbers.getrandbits(32)
        if attempt >= _ATTEMPTS:
            return RandomSampler(seed=seed)
        sampler = TPESampler(n_startup_trials=_AT_RANDOM, seed=seed)
        if len(known) >= _AT_RANDOM:
            return sampler
        fixed: Point = {
            key: _least_tried(values, [point[key] for point in known], numbers)
            for key, values in self._space.items()
            if isinstance(values, Choices) or values.size <= _AT_RANDOM
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            return PartialFixedSampler(self._parameters(fixed), sampler)

    def _parameters(self, point: Point) -> dict[str, Any]:
        """Return a point as Optuna has it."""
        return {
            key: values.values.index(point[key]) if isinstance(values, Choices) else point[key]
            for key, values in self._space.items()
            if key in point
        }

    def _point(self, parameters: Mapping[str, Any], *, is_exact: bool) -> Point:
        return {key: _value(values, parameters[key], is_exact=is_exact) for key, values in self._space.items()}


def _least_tried(values: Values, tried: Sequence[Any], numbers: random.Random) -> Any:
    """Draw one of the values that were tried least often."""
    listed = list_values(values)
    times = [tried.count(value) for value in listed]
    return numbers.choice([value for value, number in zip(listed, times, strict=True) if number == min(times)])


def _distribution(values: Values) -> "BaseDistribution":
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(values, Choices):
        return CategoricalDistribution(range(len(values.values)))  # by place: a value may be a table
    if values.whole:
        return IntDistribution(int(values.low), int(values.high), log=values.log)
    return FloatDistribution(values.low, values.high, log=values.log)


def _value(values: Values, drawn: Any, *, is_exact: bool) -> Any:
    if isinstance(values, Choices):
        return values.values[drawn]
    if values.whole or is_exact:
        return drawn
    # More digits where the first ones are the same in the whole range.
    shared = math.log10(max(abs(values.low), abs(values.high)) / (values.high - values.low))
    digits = _DIGITS + max(0, math.floor(shared))
    return min(max(float(f"{drawn:.{digits}g}"), float(values.low)), float(values.high))


class BrokenStorageError(OffbeatError):
    """The storage of a sweep that cannot be read."""


def check_optuna() -> None:
    """Raise ``OffbeatError`` if Optuna is not installed."""
    if importlib.util.find_spec("optuna") is None:
        raise OffbeatError("a sweep needs Optuna: pip install 'offbeat[sweep]'")


def open_storage(folder: Path) -> "BaseStorage":
    """Return the storage of a sweep's folder, which the caller has locked.

    Raises ``BrokenStorageError`` if it is broken, ``OffbeatError`` if it cannot be read or written.
    """
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    path = folder / _FILE
    with _disk_errors(folder):
        # What a sweep that was killed may leave: Optuna's own lock, and half a line.
        Path(f"{path}.lock").unlink(missing_ok=True)
        if path.exists():
            os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
        try:
            return JournalStorage(JournalFileBackend(str(path), JournalFileOpenLock(str(path))))
        except (ValueError, LookupError, TypeError, AttributeError):
            raise BrokenStorageError(f"{path} is broken: {_AGAIN}") from None


def remove_sweep(folder: Path, labels: Sequence[str]) -> None:
    """Remove the runs of these labels' trials, then their points.

    A broken storage is removed whole.
    """
    is_trial = re.compile(rf"({'|'.join(map(re.escape, labels))}) \d+-seed\d").match
    with run_directory.disk_errors(f"into {folder}", "choose another folder with --output"):
        for path in filter(lambda path: is_trial(path.name), list(folder.iterdir())):
            run_directory.remove(path)
        try:
            storage = open_storage(folder)
        except BrokenStorageError:
            (folder / _FILE).unlink(missing_ok=True)
            return
        names = {study.study_name for study in storage.get_all_studies()}
        for name in names.intersection(labels):
            storage.delete_study(storage.get_study_id_from_name(name))
        if names <= set(labels):
            (folder / _FILE).unlink()


def _disk_errors(folder: Path) -> AbstractContextManager[None]:
    return run_directory.disk_errors(str(folder / _FILE), "choose another folder with --output")
