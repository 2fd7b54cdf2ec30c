"""Data of the clients' own evaluations: the last one, client by client."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offbeat.report.metrics import Measure
from offbeat.report.page.numbers import short, thinned
from offbeat.runs.directory import Run, read_clients
from offbeat.runs.settings import by_label

_MOST_POINTS = 300


def client_data(runs: Sequence[Run], measure: Measure) -> dict[str, Any] | None:
    """Return a measure on the clients of the last evaluation, the worst first.

    The clients of all seeds are together. None if clients did not measure it in any run.
    """
    scale = 100.0 if measure.is_share else 1.0
    curves: list[dict[str, Any]] = []
    for place, group in enumerate(by_label(runs).values()):
        values = np.sort(np.concatenate([scale * _last_evaluation(run, measure) for run in group]))
        if not len(values):
            continue
        if not measure.higher_is_better:
            values = values[::-1]
        note = f"median {measure.write(float(np.median(values)) / scale)}"
        chosen = thinned(len(values), _MOST_POINTS)
        curves.append(
            {"label": place, "x": short(100 * (chosen + 1) / len(values)), "y": short(values[chosen]), "note": note}
        )
    if not curves:
        return None
    return {
        "title": f"{measure.title} on a client",
        "axis": "clients, the worst first (%)",
        "heading": "",
        "share": measure.is_share,
        "curves": curves,
    }


def _last_evaluation(run: Run, measure: Measure) -> NDArray[np.float64]:
    table = read_clients(run)
    if table is None or measure.name not in table or not len(table["seconds"]):
        return np.zeros(0)
    values = table[measure.name][table["seconds"] == table["seconds"].max()].astype(np.float64)
    return values[np.isfinite(values)]
