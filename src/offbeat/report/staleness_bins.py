"""Histograms of the counted updates' staleness, with the same bins for all."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offbeat.report.summary import counted_staleness
from offbeat.runs.directory import Run
from offbeat.runs.settings import by_label

_BINS = 60  # at most
_DRAWN_SHARE = 0.99  # of the updates; a few very stale ones would compress the rest


@dataclass(frozen=True)
class Histogram:
    """The staleness of one label's counted updates; all seeds weigh the same."""

    shares: NDArray[np.float64]  # percent of the updates, by bin; empty without counted updates
    mean: float  # of the seeds' means
    largest: int


@dataclass(frozen=True)
class StalenessBins:
    """The histograms of all labels."""

    edges: NDArray[np.float64]  # halfway between whole numbers
    width: int  # versions in a bin
    note: str  # for the axis
    histograms: dict[str, Histogram]


def staleness_bins(runs: Sequence[Run]) -> StalenessBins:
    """Return the histograms of the runs, the seeds of a label together."""
    groups = by_label(runs)
    stale = {label: [counted_staleness(run.events) for run in group] for label, group in groups.items()}
    together = [values for seeds in stale.values() if len(values := np.concatenate(seeds))]
    drawn = max((math.ceil(np.quantile(values, _DRAWN_SHARE)) for values in together), default=0)
    width = math.ceil((drawn + 1) / _BINS)
    edges = np.arange(0, drawn + width + 1, width, dtype=np.float64) - 0.5  # bars stand over whole numbers
    histograms = {label: _histogram(seeds, edges) for label, seeds in stale.items()}
    note = "staleness (versions made during the visit"
    if width > 1:
        note += f", {width} in a bar"
    if max(histogram.largest for histogram in histograms.values()) > edges[-1]:
        note += "; the largest values are not drawn"
    return StalenessBins(edges, width, note + ")", histograms)


def _histogram(seeds: Sequence[NDArray[np.float64]], edges: NDArray[np.float64]) -> Histogram:
    counted = [values for values in seeds if len(values)]
    if not counted:
        return Histogram(np.zeros(0), math.nan, 0)
    shares = [100 * np.histogram(values, edges)[0] / len(values) for values in counted]
    mean = float(np.mean([values.mean() for values in counted]))
    return Histogram(np.mean(shares, axis=0), mean, int(max(values.max() for values in counted)))
