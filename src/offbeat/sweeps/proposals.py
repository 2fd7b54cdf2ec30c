"""The points of a sweep's next trials."""

import importlib.util
import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from offbeat_core.errors import OffbeatError

from offbeat.sweeps.over import Choices, Values
from offbeat.sweeps.search_space import Space, all_points, size_of
from offbeat.sweeps.trials import Point, Trial

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler

_DIGITS = 4  # significant ones of a drawn number, so that settings can be read and pasted
_ALL_DIGITS = 17
_ATTEMPTS = 10  # to find a new point by its promise; later ones are drawn at random, with all digits


def check_optuna(spaces: Mapping[str, Space], trials: int) -> None:
    """Raise ``OffbeatError`` if points must be chosen and Optuna is not installed."""
    if any(size_of(space) > trials for space in spaces.values()) and importlib.util.find_spec("optuna") is None:
        raise OffbeatError("more combinations than --trials need Optuna: pip install 'offbeat[sweep]'")


def next_points(space: Space, done: Sequence[Trial], number: int, trials: int, seed: int) -> list[Point]:
    """Return points for up to ``number`` more of ``trials`` trials.

    If the space has no more points than trials, these are its points in order. Otherwise Optuna's TPE chooses, from
    the scores of the trials before. No point comes twice. The points depend on the arguments only.
    """
    known = [trial.point for trial in done]
    if size_of(space) <= trials:
        left: list[Point] = [point for point in all_points(space) if point not in known]
        return left[:number]
    found: list[Point] = []
    while len(found) < number and len(known) + len(found) < trials:
        found.append(_new_point(space, done, found, seed))
    return found


def _new_point(space: Space, done: Sequence[Trial], running: Sequence[Point], seed: int) -> Point:
    from optuna.samplers import RandomSampler, TPESampler

    known = [*(trial.point for trial in done), *running]
    attempt = 0
    while True:
        numbers = random.Random(f"{seed} {len(known)} {attempt}")
        sampler, digits = (TPESampler, _DIGITS) if attempt < _ATTEMPTS else (RandomSampler, _ALL_DIGITS)
        drawn = _ask(space, done, running, sampler(seed=numbers.getrandbits(32)))
        point = {key: _value(values, drawn[key], digits) for key, values in space.items()}
        if point not in known:
            return point
        attempt += 1


def _ask(space: Space, done: Sequence[Trial], running: Sequence[Point], sampler: "BaseSampler") -> dict[str, Any]:
    import optuna
    from optuna.trial import TrialState, create_trial

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    distributions = {key: _distribution(values) for key, values in space.items()}
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for trial in done:
        parameters = _parameters(space, trial.point)
        study.add_trial(create_trial(params=parameters, distributions=distributions, value=trial.score))
    for point in running:
        parameters = _parameters(space, point)
        study.add_trial(create_trial(params=parameters, distributions=distributions, state=TrialState.RUNNING))
    return study.ask(distributions).params


def _distribution(values: Values) -> "BaseDistribution":
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(values, Choices):
        return CategoricalDistribution(range(len(values.values)))  # by place: a value may be a table
    if values.whole:
        return IntDistribution(int(values.low), int(values.high), log=values.log)
    return FloatDistribution(values.low, values.high, log=values.log)


def _parameters(space: Space, point: Point) -> dict[str, Any]:
    """Return a point as Optuna has it."""
    return {
        key: values.values.index(point[key]) if isinstance(values, Choices) else point[key]
        for key, values in space.items()
    }


def _value(values: Values, drawn: Any, digits: int) -> Any:
    if isinstance(values, Choices):
        return values.values[drawn]
    if values.whole:
        return drawn
    return min(max(float(f"{drawn:.{digits}g}"), float(values.low)), float(values.high))
