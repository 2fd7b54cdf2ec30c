"""The benchmark's accuracies, and what they say on clients of a kind."""

import csv
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

import numpy as np

from offbeat.report.population_statistics import PopulationStatistics

Kind = Literal["offline", "lossy", "unequal", "alike"]

SENTENCES: Mapping[Kind, str] = {
    "offline": "clients come and go",
    "lossy": "clients lose work",
    "unequal": "some clients are much slower than others",
    "alike": "clients are alike",
}
KINDS: Mapping[str, Kind] = {
    "calm": "alike",
    "cifar10-diurnal": "offline",
    "cifar10-longtail": "unequal",
    "diurnal": "offline",
    "flaky": "lossy",
    "longtail": "unequal",
    "phones": "offline",
    "silo": "unequal",
    "sst2-longtail": "unequal",
}
REFERENCE = "fedbuff"  # which was run in all worlds
_NUMBERS = ("accuracy", "lead", "low", "high", "below_best")
_SAME_KIND = 3.0  # the weight of worlds of the same kind, beside 1 of the others


@dataclass(frozen=True)
class Row:
    """A tuned algorithm in a world of the benchmark, at equal virtual time."""

    world: str
    algorithm: str
    accuracy: float
    lead: float  # in accuracy over FedAvg
    low: float  # of its 95 % interval
    high: float
    below_best: float  # in accuracy, below the world's best, settings such as FedSGD included
    is_near_best: bool  # not clearly less accurate than that


def kind_of(statistics: PopulationStatistics) -> Kind:
    """Return the kind of clients: the first of these that holds."""
    visits = statistics.visit_seconds
    if statistics.presence.share.mean() < 0.9:
        return "offline"
    if statistics.loss_probability.mean() >= 0.05:
        return "lossy"
    return "unequal" if np.quantile(visits, 0.9) >= 2 * np.median(visits) else "alike"


def benchmark_rows() -> list[Row]:
    """Return the rows of ``evidence.csv``, which ``benchmarks/advice.py`` writes."""
    text = (files("offbeat.advice") / "evidence.csv").read_text(encoding="utf-8")
    return [_row(line) for line in csv.DictReader(text.splitlines())]


def _row(line: Mapping[str, str]) -> Row:
    accuracy, lead, low, high, below = (float(line[name]) for name in _NUMBERS)
    return Row(line["world"], line["algorithm"], accuracy, lead, low, high, below, line["is_near_best"] == "True")


def rank(rows: Iterable[Row], kind: Kind, algorithms: Collection[str]) -> list[str]:
    """Return those of the algorithms that have rows, the most promising first.

    The score is the mean difference to FedBuff, which all worlds have. Worlds with the same clients, such as
    ``longtail`` and ``cifar10-longtail``, count as one; those of the same kind three times.
    """
    rows = list(rows)
    references = {row.world: row.accuracy for row in rows if row.algorithm == REFERENCE}
    scores: dict[str, float] = {}
    for algorithm in algorithms:
        families: dict[str, list[Row]] = {}
        for row in rows:
            if row.algorithm == algorithm:
                families.setdefault(family(row.world), []).append(row)
        if families:
            means = [np.mean([row.accuracy - references[row.world] for row in group]) for group in families.values()]
            weights = [_SAME_KIND if KINDS[group[0].world] == kind else 1.0 for group in families.values()]
            scores[algorithm] = float(np.average(means, weights=weights))
    return sorted(scores, key=lambda algorithm: -scores[algorithm])


def family(world: str) -> str:
    """Return the world whose clients a world has."""
    return world.rpartition("-")[2]


def choice_without(rows: Iterable[Row], world: str) -> str:
    """Return the first choice in a world, from the worlds with other clients."""
    rows = list(rows)
    others = [row for row in rows if family(row.world) != family(world)]
    measured = {row.algorithm for row in rows if row.world == world}
    return rank(others, KINDS[world], measured)[0]
