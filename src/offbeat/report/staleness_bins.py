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
    """The staleness of one label's counted updates."""

    shares: NDArray[np.float64]  # percent of the updates, by bin; empty without counted updates
    mean: float
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
    stale = {label: np.concatenate([counted_staleness(run.events) for run in group]) for label, group in groups.items()}
    drawn = max((math.ceil(np.quantile(v, _DRAWN_SHARE)) for v in stale.values() if len(v)), default=0)
    width = math.ceil((drawn + 1) / _BINS)
    edges = np.arange(0, drawn + width + 1, width, dtype=np.float64) - 0.5  # bars stand over whole numbers
    histograms = {label: _histogram(values, edges) for label, values in stale.items()}
    note = "staleness (versions made during the visit"
    if width > 1:
        note += f", {width} in a bar"
    if max(histogram.largest for histogram in histograms.values()) > edges[-1]:
        note += "; the largest values are not drawn"
    return StalenessBins(edges, width, note + ")", histograms)


def _histogram(values: NDArray[np.float64], edges: NDArray[np.float64]) -> Histogram:
    if not len(values):
        return Histogram(np.zeros(0), math.nan, 0)
    return Histogram(100 * np.histogram(values, edges)[0] / len(values), float(values.mean()), int(values.max()))
