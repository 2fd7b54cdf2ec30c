"""Studies made by hand, in which it is known whether the hypotheses hold."""

import math
from collections.abc import Callable

import numpy as np

from offbeat_studies.papers.displacement.branches import Study
from offbeat_studies.papers.displacement.points import DisplacementSection, Point, settings
from offbeat_studies.papers.displacement.setting import Setting

SECTION = {
    "tuning_seeds": [0, 1, 2, 3, 4],
    "seeds": [10, 11, 12, 13, 14, 15, 16, 17, 18, 19],
    "sizes": [5, 20],
    "at_work": [5, 10, 20],
    "x": [0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8],
    "bounded_from": 0.35,
    "small_lr": 0.1,
    "small_lr_at_work": 10,
    "world": {
        "clients": 50,
        "alpha": 0.3,
        "steps": 5,
        "batch_size": 20,
        "lr": 0.5,
        "spread": 0.1,
        "test_examples": 1000,
        "target": 0.8,
        "every": 5,
        "budget": 5000,
    },
}
Law = Callable[[Setting, float], float]
"""Uploads of a setting at a displacement, without noise."""


def collapse(setting: Setting, displacement: float) -> float:
    """Return uploads under both hypotheses: τ_u times a function with its lowest point at x = 1."""
    x = displacement * setting.delay
    return 10 * setting.delay * math.exp(0.5 * math.log(x) ** 2)


def study(law: Law, *, noise: float = 0.05, norm: float = 0.5, budget: int = 5000) -> Study:
    """Return a study that follows a law; a seed has its own level, and each run noise."""
    section = DisplacementSection.model_validate(SECTION | {"world": SECTION["world"] | {"budget": budget}})
    random = np.random.default_rng(7)
    seeds = [*section.tuning_seeds, *section.seeds]
    levels = dict(zip(seeds, random.normal(0, 0.2, len(seeds)), strict=True))
    points: list[Point] = []
    for setting, displacements in settings(section):
        own = norm if setting.lr != section.world.lr else 1.0
        for c in displacements:
            runs: dict[int, int | None] = {}
            for seed in seeds:
                uploads = law(setting, c * own) * math.exp(levels[seed] + random.normal(0, noise))
                runs[seed] = round(uploads) if uploads <= budget else None
            points.append(Point(setting, c, own, runs, 1.0))
    return Study(section, points)
