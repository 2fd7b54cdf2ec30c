"""Effects by seed: equivalence, prediction, and the best displacement."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from offbeat.statistics.hypothesis_tests import Range
from offbeat_studies.papers.displacement.branches import Study
from offbeat_studies.papers.displacement.curve import Curve, lowest_point
from offbeat_studies.papers.displacement.points import Point
from offbeat_studies.papers.displacement.setting import Setting
from offbeat_studies.papers.figures.claim_effects import mean, minus

_WINDOW = 2 * math.sqrt(2) * 1.001  # around the best displacement, for the parabola


def log_ratios(study: Study, ours: Setting, other: Setting, seed: int) -> list[Range]:
    """Return log uploads of one setting less another's, along their right branch."""
    pairs = zip(study.right_branch(ours), study.right_branch(other), strict=True)
    return [log_ratio(study, left, right, seed) for left, right in pairs]


def log_ratio(study: Study, ours: Point, other: Point, seed: int) -> Range:
    """Return log uploads at one point less those at another, within bounds."""
    return minus(study.log_uploads(ours, seed), study.log_uploads(other, seed))


def fit(study: Study, settings: Sequence[Setting]) -> Curve:
    """Return the curve of settings, by the tuning seeds."""
    runs = [
        (point, study.log_uploads(point, seed))
        for setting in settings
        for point in study.of(setting)
        for seed in study.section.tuning_seeds
    ]
    return Curve.fit(
        np.array([point.x for point, _ in runs]),
        np.array([point.setting.delay for point, _ in runs]),
        np.array([log.low for _, log in runs]),
        np.array([log.high == math.inf for _, log in runs]),
    )


def prediction_errors(
    study: Study, is_left_out: Callable[[Setting], bool], at_work: int, seeds: Sequence[int]
) -> list[Range]:
    """Return, by seed, log uploads of the left-out settings less their prediction.

    The curve is fitted without them; the level of a seed is that of the other settings with the same M.
    """
    others = [setting for setting in study.reference if not is_left_out(setting)]
    left_out = [setting for setting in study.settings if is_left_out(setting)]
    curve = fit(study, others)

    def mean_error(settings: Sequence[Setting], seed: int) -> Range:
        points = [point for one in settings if one.at_work == at_work for point in study.right_branch(one)]
        return mean([_error(study, curve, point, seed) for point in points])

    return [minus(mean_error(left_out, seed), mean_error(others, seed)) for seed in seeds]


def _error(study: Study, curve: Curve, point: Point, seed: int) -> Range:
    predicted = curve.log_uploads(point.x, point.setting.delay)
    return minus(study.log_uploads(point, seed), Range(predicted, predicted))


def best_displacement(study: Study, setting: Setting, seed: int) -> float:
    """Return a seed's best D of a setting: the lowest point of a parabola in log D."""
    best = study.best(setting)
    points = [point for point in study.of(setting) if best / _WINDOW <= point.c <= best * _WINDOW]
    logs = [study.log_uploads(point, seed) for point in points]
    return math.exp(
        lowest_point(
            [math.log(point.displacement) for point in points],
            [log.low for log in logs],
            [log.high == math.inf for log in logs],
        )
    )


def scaling_power(study: Study, seed: int) -> float:
    """Return p where the best D of FedBuff and FedFa grows as τ_u to the power p."""
    settings = [setting for setting in study.reference if not setting.is_bounded]
    delays = np.log([setting.delay for setting in settings])
    best = np.log([best_displacement(study, setting, seed) for setting in settings])
    return float(np.polynomial.polynomial.polyfit(delays, best, 1)[1])
