"""Data of clients: when they worked, whose updates counted, what they measured."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offbeat import units
from offbeat.report.metrics import Measure
from offbeat.report.page.curve_data import short, thinned
from offbeat.runs.directory import OUTCOMES, Run, read_clients
from offbeat.runs.parquet_chunks import Columns
from offbeat.runs.settings import by_label

_MOST_POINTS = 300
_CLIENTS = 100  # rows of a panel; more would be too thin to see
_VISITS = 1500  # bars in all panels together
_MOST_VISITS = 6000  # bars in all panels, where _AT_LEAST needs more than _VISITS
_VISITS_ACROSS = 60  # visits of median length that span a panel
_AT_LEAST = 5  # visits of its own median length for which a panel has room


def timeline_data(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the visits of each label's first seed that begin in a common window.

    Times are in the unit of the axis, since the window's begin. A row is a client, the fastest first. Of many clients
    some are drawn, and of a long time only the beginning.
    """
    firsts = [group[0] for group in by_label(runs).values()]
    everyone = clients = _by_speed([run.events for run in firsts])
    if len(everyone) > _CLIENTS:
        clients = everyone[np.linspace(0, len(everyone) - 1, _CLIENTS).round().astype(int)]
    visits = [_of_clients(run.events, clients) for run in firsts]
    begin, end, last = _window(visits)
    unit, unit_name = units.time_unit(end - begin)
    since = f" since the first visit, at {units.duration(begin)}" if begin else ""
    part = f"; the first {units.duration(end - begin)} of {units.duration(last - begin)}" if end < last else ""
    row = {client: place for place, client in enumerate(clients.tolist())}
    left_out = f" of {len(everyone):,}" if len(clients) < len(everyone) else ""
    return {
        "title": f"virtual time{since} ({unit_name}{part})",
        "rows": f"{len(clients)}{left_out} clients",
        "note": f"Seed {firsts[0].seed}." if len(runs) > len(firsts) else "",
        "end": (end - begin) / unit or 1,
        "clients": clients.tolist(),
        "outcomes": list(OUTCOMES),
        "visits": [_bars(events, row, begin, end, unit) for events in visits],
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


def _by_speed(events: Sequence[Columns]) -> NDArray[np.int64]:
    """Return the clients with visits, fastest mean visit first.

    Those that lost all visits come last.
    """
    client = np.concatenate([part["client"] for part in events])
    seconds = np.concatenate([part["ended_seconds"] - part["assigned_seconds"] for part in events])
    heard = np.concatenate([part["outcome"] != "lost" for part in events])
    ids, index = np.unique(client, return_inverse=True)
    visits = np.bincount(index[heard], minlength=len(ids))
    total = np.bincount(index[heard], weights=seconds[heard], minlength=len(ids))
    mean = np.divide(total, visits, out=np.full(len(ids), np.inf), where=visits > 0)
    return ids[np.argsort(mean, kind="stable")]


def _of_clients(events: Columns, clients: NDArray[np.int64]) -> Columns:
    chosen = np.isin(events["client"], clients)
    return {name: column[chosen] for name, column in events.items()}


def _window(visits: Sequence[Columns]) -> tuple[float, float, float]:
    """Return begin and end of the window, and the end of the last visit; seconds.

    The window begins with the first visit. It ends where bars become too many or too short to see, but each panel has
    room for a few of its own visits: the worlds of a merged report may have very different speeds.
    """
    panels = [(part["assigned_seconds"], part["ended_seconds"]) for part in visits if len(part["assigned_seconds"])]
    if not panels:
        return 0.0, 0.0, 0.0
    begins = np.sort(np.concatenate([assigned for assigned, _ in panels]))
    lengths = np.concatenate([ended - assigned for assigned, ended in panels])
    begin, last = float(begins[0]), max(float(ended.max()) for _, ended in panels)

    def begins_after(number: int) -> float:
        return float(begins[number]) if len(begins) > number else last

    limits = (last, begins_after(_VISITS), begin + _VISITS_ACROSS * float(np.median(lengths)))
    end = min((limit for limit in limits if limit > begin), default=begin)
    needed = max(float(assigned.min() + _AT_LEAST * np.median(ended - assigned)) for assigned, ended in panels)
    return begin, max(end, min(needed, last, begins_after(_MOST_VISITS))), last


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
