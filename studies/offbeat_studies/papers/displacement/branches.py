"""The right branch of each setting: the points that the tests use."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from offbeat.statistics.hypothesis_tests import Range
from offbeat_studies.papers.displacement.points import DisplacementSection, Point
from offbeat_studies.papers.displacement.setting import Setting

_ROUNDING = 1.001


@dataclass(frozen=True)
class Study:
    """All points of the study, and where their right branches begin."""

    section: DisplacementSection
    points: Sequence[Point]

    def of(self, setting: Setting) -> list[Point]:
        """Return the points of a setting, with ascending displacement."""
        return sorted((point for point in self.points if point.setting == setting), key=lambda point: point.c)

    @property
    def settings(self) -> list[Setting]:
        """All settings, in order."""
        return list(dict.fromkeys(point.setting for point in self.points))

    @property
    def reference(self) -> list[Setting]:
        """The settings with the reference step size."""
        return [setting for setting in self.settings if setting.lr == self.section.world.lr]

    def best(self, setting: Setting) -> float:
        """Return a setting's best displacement in units of its ‖Δ‖, by the tuning seeds.

        That of FedBuff and FedFa is the same: the best for both together.
        """
        twins = [one for one in self.settings if _is_twin(one, setting)]
        by_c: dict[float, list[float]] = {}
        for one in twins:
            for point in self.of(one):
                by_c.setdefault(point.c, []).extend(self.logs(point, self.section.tuning_seeds))
        return min(by_c, key=lambda c: math.fsum(by_c[c]) / len(by_c[c]))

    def is_at_edge(self, setting: Setting) -> bool:
        """Report whether the best displacement is the lowest or highest one tried."""
        tried = [point.c for point in self.of(setting)]
        return not setting.is_bounded and self.best(setting) in (tried[0], tried[-1])

    def right_branch(self, setting: Setting) -> list[Point]:
        """Return the points that the tests use."""
        if setting.is_bounded:
            return [point for point in self.of(setting) if point.x * _ROUNDING >= self.section.bounded_from]
        best = self.best(setting)
        return [point for point in self.of(setting) if best / _ROUNDING <= point.c <= 2 * best * _ROUNDING]

    def logs(self, point: Point, seeds: Iterable[int]) -> list[float]:
        """Return log uploads by seed; of the budget where the target was missed."""
        return [self.log_uploads(point, seed).low for seed in seeds]

    def log_uploads(self, point: Point, seed: int) -> Range:
        """Return log uploads to the target, within bounds."""
        uploads = point.uploads[seed]
        if uploads is None:
            return Range(math.log(self.section.world.budget), math.inf)
        return Range(math.log(uploads), math.log(uploads))


def _is_twin(one: Setting, other: Setting) -> bool:
    """Return whether settings share displacement, delay and a right branch."""
    return one == other or (
        not one.is_bounded
        and not other.is_bounded
        and (one.size, one.at_work, one.lr) == (other.size, other.at_work, other.lr)
    )
