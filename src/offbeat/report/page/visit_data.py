"""Data of the visits: which client worked when, and whose updates counted."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offbeat import units
from offbeat.report.page.numbers import short, thinned
from offbeat.report.timeline import drawn_visits
from offbeat.runs.directory import OUTCOMES, Run
from offbeat.runs.parquet_chunks import Columns
from offbeat.runs.settings import by_label

_MOST_POINTS = 300


def timeline_data(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the visits of each label's first seed that begin in a common window.

    Times are in the unit of the axis, since the window's begin. A row is a client, the fastest first.
    """
    drawn = drawn_visits(runs)
    unit, _ = units.time_unit(drawn.end - drawn.begin)
    row = {client: place for place, client in enumerate(drawn.clients.tolist())}
    several = len(runs) > len(drawn.visits)
    return {
        "title": drawn.axis_title(),
        "rows": drawn.clients_title() if len(drawn.clients) < drawn.all_clients else f"{len(drawn.clients)} clients",
        "note": f"Seed {drawn.seed}." if several else "",
        "end": (drawn.end - drawn.begin) / unit or 1,
        "clients": drawn.clients.tolist(),
        "outcomes": list(OUTCOMES),
        "visits": [_bars(events, row, drawn.begin, drawn.end, unit) for events in drawn.visits.values()],
    }


def _bars(events: Columns, row: dict[int, int], begin: float, end: float, unit: float) -> dict[str, Any]:
    inside = events["assigned_seconds"] < end
    part = {name: values[inside] for name, values in events.items()}
    return {
        "row": [row[client] for client in part["client"].tolist()],
        "begin": short((part["assigned_seconds"] - begin) / unit),
        "end": short((part["ended_seconds"] - begin) / unit),
        "outcome": [OUTCOMES.index(outcome) for outcome in part["outcome"].tolist()],
        "staleness": short(part["staleness"]),
    }


def participation_data(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the counted updates of each label's clients, the most active first.

    They are means of the seeds at each rank. The notes say how few clients brought half of the updates.
    """
    curves: list[dict[str, Any]] = []
    for place, group in enumerate(by_label(runs).values()):
        ranked = [_counted_by_client(run) for run in group]
        active = max(map(len, ranked))
        mean = np.mean([np.pad(counts, (0, active - len(counts))) for counts in ranked], axis=0)
        everyone = max(int(group[0].config["population"]["clients"]), active)
        chosen = thinned(active, _MOST_POINTS)
        ranks = [*(chosen + 1), *({active + 1, everyone} if active < everyone else ())]
        curves.append(
            {
                "label": place,
                "x": short(100 * np.array(sorted(ranks)) / everyone),
                "y": short([*mean[chosen], *[0.0] * (len(ranks) - len(chosen))]),
                "note": _concentration(mean, everyone),
            }
        )
    return {
        "title": "counted updates of a client",
        "axis": "clients, the most active first (%)",
        "heading": "Half of the counted updates come from:",
        "share": False,
        "curves": curves,
    }


def _counted_by_client(run: Run) -> NDArray[np.int64]:
    """Return the counted updates of each client that has any, descending."""
    clients = run.events["client"][run.events["outcome"] == "counted"]
    return np.sort(np.unique(clients, return_counts=True)[1])[::-1]


def _concentration(counts: NDArray[np.float64], everyone: int) -> str:
    if not len(counts):
        return "no counted updates"
    half = int(np.searchsorted(counts.cumsum(), counts.sum() / 2)) + 1
    idle = f"; {100 * (1 - len(counts) / everyone):.3g} % have none" if len(counts) < everyone else ""
    return f"{100 * half / everyone:.3g} % of the clients{idle}"
