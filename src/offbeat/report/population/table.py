"""What a population is like: who is there when, how fast, with which labels; and the table that says so."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.table import Table
from rich.text import Text

from offbeat import units
from offbeat.population.availability import Availability

_RUNS = 10  # of adjacent clients whose presence is looked at
_RUN = 100  # clients in each of them
_TIMES = 500  # at which it is looked at
_NAMES = 10  # of clients, as many are named


@dataclass(frozen=True, eq=False)
class Presence:
    """Who is there when, of some clients at some times.

    Attributes:
        clients: int64 ``(n,)``, the clients that were looked at.
        first: ``(n,)``, when each client first comes; inf where it never does; seconds.
        times: ``(T,)``, when, ascending; seconds.
        stays: ``(n, T)``, how long each client then stays on; 0 where it is away, inf where it never leaves.
    """

    clients: NDArray[np.int64]
    first: NDArray[np.float64]
    times: NDArray[np.float64]
    stays: NDArray[np.float64]

    @property
    def there(self) -> NDArray[np.bool_]:
        """Return who is there when, ``(n, T)``."""
        return self.stays > 0

    @property
    def share(self) -> NDArray[np.float64]:
        """Return the share of the clients that is there at each time, ``(T,)``."""
        return self.there.mean(axis=0)


@dataclass(frozen=True, eq=False)
class PopulationView:
    """The clients of one seed of an experiment, as they are drawn.

    Attributes:
        title: The experiment's name.
        seed: The seed that made the clients.
        label_counts: ``(N, classes)``, each client's training examples of each class; None where labels are no classes.
        examples: ``(N,)``, each client's training examples.
        steps: Local steps of a visit.
        step_seconds: ``(N,)``, how long one of them takes.
        down_bytes_per_second: ``(N,)``, means where it varies.
        up_bytes_per_second: ``(N,)``, means where it varies.
        model_bytes: What goes down, and up again, in a visit.
        loss_probability: ``(N,)``, how probable it is that a visit's work never arrives.
        availability: When the clients are there.
        horizon_seconds: Until when to look, the run's end; finite.
    """

    title: str
    seed: int
    label_counts: NDArray[np.int64] | None
    examples: NDArray[np.int64]
    steps: int
    step_seconds: NDArray[np.float64]
    down_bytes_per_second: NDArray[np.float64]
    up_bytes_per_second: NDArray[np.float64]
    model_bytes: int
    loss_probability: NDArray[np.float64]
    availability: Availability
    horizon_seconds: float

    def __post_init__(self) -> None:
        if not 0 < self.horizon_seconds < math.inf:
            raise ValueError(f"horizon_seconds is {self.horizon_seconds}, but must be above 0 and finite")

    @property
    def clients(self) -> int:
        """Return how many clients there are, N."""
        return len(self.examples)

    @cached_property
    def visit_parts(self) -> dict[str, NDArray[np.float64]]:
        """How long each client takes for each part of a visit, ``(N,)`` each; seconds."""
        return {
            "download": self.model_bytes / self.down_bytes_per_second,
            "local steps": self.steps * self.step_seconds,
            "upload": self.model_bytes / self.up_bytes_per_second,
        }

    @cached_property
    def visit_seconds(self) -> NDArray[np.float64]:
        """How long a visit of each client takes, ``(N,)``."""
        return np.sum(list(self.visit_parts.values()), axis=0)

    @cached_property
    def presence(self) -> Presence:
        """Who is there when: of up to 1,000 clients at 500 times, evenly over the horizon."""
        clients = np.arange(self.clients)
        if self.clients > _RUNS * _RUN:
            # Not evenly one by one: an availability that computes adjacent clients together is many times faster so.
            starts = evenly(np.arange(self.clients - _RUN + 1), _RUNS)
            clients = (starts[:, np.newaxis] + np.arange(_RUN)).ravel()
        times = np.linspace(0, self.horizon_seconds, 2 * _TIMES + 1)[1::2]  # the middles of 500 parts
        first = np.array([self.availability.next_available(client, 0.0) for client in clients.tolist()], np.float64)
        return Presence(clients, first, times, _stays(self.availability, clients, times, first))


def evenly(items: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Return all the items or, of more than ``most``, that many, at even distances, the first and the last included."""
    if len(items) <= most:
        return items
    return items[np.linspace(0, len(items) - 1, most).round().astype(int)]


def effective_labels(label_counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return how many equally common labels would be as diverse as each client's, ``(N,)``.

    This is exp(−Σ p ln p), the Hill number of order 1 (Jost, "Entropy and diversity", Oikos 2006): 1 for one label,
    the number of classes for all in equal parts, 0 for a client without examples.

    Args:
        label_counts: ``(N, classes)``.
    """
    total = label_counts.sum(axis=1, keepdims=True)
    share = label_counts / np.maximum(total, 1)
    logarithm = np.log(share, out=np.zeros_like(share), where=share > 0)
    return np.where(total[:, 0] > 0, np.exp(-(share * logarithm).sum(axis=1)), 0.0)


def population_table(view: PopulationView) -> Table:
    """Return the table of a population for the terminal."""
    table = Table(
        box=box.SIMPLE,
        pad_edge=False,
        # Text, because in a plain string rich would take square brackets for markup.
        title=Text(f"{view.title}, seed {view.seed}: {how_many(view)}"),
        title_justify="left",
        title_style="bold",
        caption=Text(" ".join(_sentences(view))),
        caption_justify="left",
    )
    table.add_column("", no_wrap=True)
    for name in ("min", "median", "mean", "95 %", "max"):
        table.add_column(name, justify="right")

    def row(name: str, values: NDArray[np.float64] | NDArray[np.int64], write: Callable[[float], str]) -> None:
        table.add_row(name, *(write(number) for number in _spread(values)))

    row("Examples a client", view.examples, _number)
    if view.label_counts is not None:
        row("Labels a client", (view.label_counts > 0).sum(axis=1), _number)
        row("  effective number", effective_labels(view.label_counts), units.decimal)
    table.add_section()
    row("A visit", view.visit_seconds, seconds)
    for name, values in view.visit_parts.items():
        row(f"  {name}", values, seconds)
    table.add_section()
    row("Clients there", view.presence.share, units.percent)
    visits = _visits_before_leaving(view)
    if len(visits):
        row("Visits until it goes", visits, _number)
    return table


def how_many(view: PopulationView) -> str:
    """Write how many clients there are."""
    return f"{view.clients:,} client{'s' if view.clients != 1 else ''}"


def seconds(duration: float) -> str:
    """Write a duration; one of less than a second with two digits, because a download may take 0.0042 s."""
    return f"{duration:.2g} s" if duration < 0.995 else units.duration(duration)


def _stays(
    availability: Availability, clients: NDArray[np.int64], times: NDArray[np.float64], first: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return how long each client stays on from each of the times, ``(n, T)``; asks only where an answer ends."""
    stays = np.zeros((len(clients), len(times)))
    leaves = np.zeros(len(clients))  # when each client leaves or, if it is away, left last
    known = first.copy()  # until when the last answer says whether it is there
    # Time is the outer loop, as in a run: availabilities look ahead of the present and forget the past.
    for column, now in enumerate(times.tolist()):
        for row in np.flatnonzero(known <= now).tolist():
            client = int(clients[row])
            known[row] = availability.next_available(client, now)
            if known[row] == now:
                known[row] = leaves[row] = availability.next_offline(client, now)
        stays[:, column] = np.maximum(leaves - now, 0)
    return stays


def _visits_before_leaving(view: PopulationView) -> NDArray[np.float64]:
    """Return how many whole visits, one after the other, fit from each moment at which a client is there."""
    presence = view.presence
    visits = np.floor(presence.stays / view.visit_seconds[presence.clients, np.newaxis])
    return visits[presence.there]


def _spread(values: NDArray[np.float64] | NDArray[np.int64]) -> tuple[float, float, float, float, float]:
    """Return minimum, median, mean, 95th percentile (19 of 20 are at or below it), maximum."""
    # Not np.quantile: between two infinities it would find NaN.
    ordered = np.sort(values).tolist()
    number = len(ordered)
    median = (ordered[(number - 1) // 2] + ordered[number // 2]) / 2
    return ordered[0], median, sum(ordered) / number, ordered[math.ceil(0.95 * number) - 1], ordered[-1]


def _sentences(view: PopulationView) -> list[str]:
    """What the table's rows do not say."""
    ordered = np.sort(view.visit_seconds)
    slowest = np.median(ordered[len(ordered) * 9 // 10 :])
    sentences = [
        f"A visit: {units.size(view.model_bytes)} down, {view.steps:,} local steps, as much up.",
        f"The slowest tenth takes {slowest / np.median(ordered):.1f} times as long as the median client.",
        _lossy(view.loss_probability),
    ]
    presence = view.presence
    visits = _visits_before_leaving(view)
    if not len(visits):
        sentences.append("No client is ever there.")
    elif np.isinf(presence.stays).all():
        sentences.append("All clients are always there.")
    else:
        sentences.append(
            f"{units.percent((visits >= 1).mean())} of visits, begun at any moment while a client is there, "
            "end before it leaves."
        )
        sentences.append("Visits until it goes: how many fit, one after the other, from such a moment on.")
        never = presence.clients[presence.first > view.horizon_seconds]
        if len(never):
            sentences.append(_never_there(never, len(presence.clients), view.horizon_seconds))
    some = f", of {len(presence.clients):,} of the clients" if len(presence.clients) < view.clients else ""
    sentences.append(f"Who is there: at {_TIMES} times within {units.duration(view.horizon_seconds)}{some}.")
    return sentences


def _never_there(never: NDArray[np.int64], looked_at: int, horizon_seconds: float) -> str:
    names = ", ".join(map(str, never[:_NAMES].tolist())) + (", …" if len(never) > _NAMES else "")
    are = "is" if len(never) == 1 else "are"
    return (
        f"{len(never):,} of {looked_at:,} clients {are} never there within {units.duration(horizon_seconds)}: {names}."
    )


def _lossy(probability: NDArray[np.float64]) -> str:
    lossy = probability[probability > 0]
    if not len(lossy):
        return "No visit is lost on its way."
    mean = "" if lossy.min() == lossy.max() else " on average"
    return f"Lossy clients: {len(lossy):,}, which lose {units.percent(lossy.mean())} of their visits{mean}."


def _number(number: float) -> str:
    return "∞" if math.isinf(number) else f"{number:,.1f}".removesuffix(".0")
