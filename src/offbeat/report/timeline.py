"""Figure of the visits: which client worked when."""

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from offbeat import units
from offbeat.report.line_styles import line_styles
from offbeat.report.plot_style import GREY, STYLE, WIDTH, tidy, title
from offbeat.runs.directory import OUTCOMES, Run
from offbeat.runs.parquet_chunks import Columns
from offbeat.runs.settings import by_label

_CLIENTS = 100  # rows of a panel; more would be too thin to see
_VISITS = 1500  # bars in all panels together
_MOST_VISITS = 6000  # bars in all panels, where _AT_LEAST needs more than _VISITS
_VISITS_ACROSS = 60  # visits of median length that span a panel
_AT_LEAST = 5  # visits of its own median length for which a panel has room
_PANEL_INCHES = 2.1
_COLOURS = dict(zip(OUTCOMES, ("#7BA7CC", "#E8B923", "#A3243B"), strict=True))  # differ in lightness too


@dataclass(frozen=True)
class DrawnVisits:
    """The visits of each label's first seed that a time line shows."""

    seed: int  # of the first label
    visits: dict[str, Columns]
    clients: NDArray[np.int64]  # drawn, fastest mean visit first
    all_clients: int  # with visits
    begin: float  # seconds, of the first visit
    end: float  # of the window
    last: float  # end of the last visit

    def axis_title(self) -> str:
        """Return the title of the axis of time, and what it leaves out."""
        name = units.time_unit(self.end - self.begin)[1]
        length, whole = self.end - self.begin, self.last - self.begin
        part = f"; the first {units.duration(length)} of {units.duration(whole)}" if self.end < self.last else ""
        since = f" since the first visit, at {units.duration(self.begin)}" if self.begin else ""
        return f"virtual time{since} ({name}{part})"

    def clients_title(self) -> str:
        """Return the title of the axis of clients."""
        drawn = len(self.clients)
        return f"{drawn} of {self.all_clients:,} clients" if drawn < self.all_clients else "clients"


def drawn_visits(runs: Sequence[Run]) -> DrawnVisits:
    """Return the visits to draw: of all clients and of the whole time only if few."""
    firsts = {label: group[0] for label, group in by_label(runs).items()}
    everyone = _by_speed([run.events for run in firsts.values()])
    clients = everyone
    if len(everyone) > _CLIENTS:
        clients = everyone[np.linspace(0, len(everyone) - 1, _CLIENTS).round().astype(int)]
    visits = {label: _of_clients(run.events, clients) for label, run in firsts.items()}
    seed = next(iter(firsts.values())).seed
    return DrawnVisits(seed, visits, clients, len(everyone), *_window(list(visits.values())))


@matplotlib.rc_context(STYLE)
def timeline(runs: Sequence[Run]) -> Figure:
    """Draw a bar for each visit, a row for each client, a panel for each algorithm.

    Only the first seed of an algorithm is drawn.

    Rows and time are the same in all panels. If there are too many, clients are left out evenly over the order of
    their speeds, and the time ends early; the labels say so. Time begins at the first visit drawn.
    """
    drawn = drawn_visits(runs)
    styles = line_styles(runs)
    clients, begin, end = drawn.clients, drawn.begin, drawn.end
    unit, _ = units.time_unit(end - begin)

    figure = Figure(figsize=(WIDTH, 0.95 + _PANEL_INCHES * len(styles)), layout="constrained")
    panels = figure.subplots(len(styles), sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, (label, events) in zip(panels, drawn.visits.items(), strict=True):
        tidy(axes)
        axes.grid(visible=False, axis="y")
        axes.set_title(label, loc="left", color=styles[label].colour, fontweight="bold")
        _draw(axes, events, clients, (begin, end), unit)
    rows = max(len(clients), 1)
    panels[0].set_ylim(-0.7, rows - 0.3)
    panels[0].set_yticks([0, rows - 1] if rows > 1 else [0], ["fastest", "slowest"][:rows])
    panels[0].set_xlim(0, (end - begin) / unit or 1)
    panels[-1].set_xlabel(drawn.axis_title())
    figure.supylabel(drawn.clients_title(), fontsize=STYLE["axes.labelsize"])
    several = len(runs) > len(styles)
    title(figure, "Which client worked when" + (f" (seed {drawn.seed})" if several else ""))
    figure.legend(
        handles=[Line2D([], [], color=colour, linewidth=5, label=name) for name, colour in _COLOURS.items()],
        loc="upper right",
        ncols=len(_COLOURS),
        frameon=False,
        handlelength=1,
        labelcolor=GREY,
    )
    return figure


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


def _draw(axes: Axes, events: Columns, clients: NDArray[np.int64], window: tuple[float, float], unit: float) -> None:
    begin, end = window
    row = {client: position for position, client in enumerate(clients.tolist())}
    width = min(5.0, 0.85 * 72 * (_PANEL_INCHES - 0.3) / max(len(clients), 1))  # points; leaves a gap
    inside = events["assigned_seconds"] < end
    for outcome, colour in _COLOURS.items():
        chosen = inside & (events["outcome"] == outcome)
        begins = (events["assigned_seconds"][chosen] - begin) / unit
        ends = (events["ended_seconds"][chosen] - begin) / unit
        rows = [row[client] for client in events["client"][chosen].tolist()]
        bars = [((a, y), (b, y)) for a, b, y in zip(begins, ends, rows, strict=True)]
        axes.add_collection(
            LineCollection(bars, colors=colour, linewidths=width, capstyle="butt", label=outcome), autolim=False
        )
