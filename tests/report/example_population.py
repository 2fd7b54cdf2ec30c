"""A small population, worked out by hand."""

import math
from dataclasses import replace

import numpy as np

from offbeat.report.population_statistics import PopulationStatistics


class Spells:
    """Availability in given intervals [from, until) of each client, ascending and apart."""

    def __init__(self, *spells):
        self.spells = spells
        self.calls = 0

    def next_available(self, client, seconds):
        self.calls += 1
        return next((max(begin, seconds) for begin, end in self.spells[client] if seconds < end), math.inf)

    def next_offline(self, client, seconds):
        self.calls += 1
        return next(end for begin, end in self.spells[client] if begin <= seconds < end)


ALWAYS = [(0.0, math.inf)]


def example(spells=(ALWAYS, ALWAYS, ALWAYS, ALWAYS), horizon=1000.0, **changes):
    """Visits of 1 + 2 + 2, 1 + 4 + 2, 2 + 6 + 4 and 1 + 40 + 2 seconds; presence at 1, 3, 5, … 999 s."""
    number = len(spells)
    statistics = PopulationStatistics(
        title="quick",
        seed=7,
        label_counts=np.array([[5, 0, 0, 0], [2, 2, 2, 2], [0, 1, 3, 0], [10, 0, 10, 0]])[:number],
        examples=np.array([5, 8, 4, 20])[:number],
        steps=np.full(number, 2),
        step_seconds=np.array([1.0, 2.0, 3.0, 20.0])[:number],
        down_bytes_per_second=np.array([1000.0, 1000.0, 500.0, 1000.0])[:number],
        up_bytes_per_second=np.array([500.0, 500.0, 250.0, 500.0])[:number],
        model_bytes=1000,
        upload_bytes=1000,
        loss_probability=np.zeros(number),
        availability=Spells(*spells),
        horizon_seconds=horizon,
    )
    return replace(statistics, **changes)
