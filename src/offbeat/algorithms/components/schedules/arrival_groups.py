"""COMPASS: groups of clients whose numbers of steps let them arrive together."""

import math
from typing import Any, NamedTuple

from offbeat.algorithms.components.component import RunFacts, prefixed, restored, saved, under
from offbeat.algorithms.components.schedules.schedule import Schedule

_ROUNDING = 1e-9  # steps; absorbs the rounding of times


class Place(NamedTuple):
    """A client's next visit: its steps and its group.

    Attributes:
        steps: Local steps.
        group: The number of a group that exists; None for a new one.
        arrival: The new group's expected arrival, in seconds; −∞ if no client may join it.
        latest: The new group's deadline, in seconds.
    """

    steps: int
    group: int | None = None
    arrival: float = -math.inf
    latest: float = math.inf


class ArrivalGroups(Schedule):
    """All clients work, in groups whose members arrive at about the same time.

    A client of unknown speed takes the most steps, in a group of its own. Each other client joins the group until whose
    expected arrival it can take the most steps within the limits; if there is none, it begins a new group. A group
    closes the buffer when all its members were heard or lost, or at its deadline. Members that were heard wait until
    then. A client that is heard after the deadline can be assigned again at once, and its update is in the next
    release of any group.

    ``number`` counts the events after which clients may be assigned again.

    Args:
        steps: Smallest and largest number of local steps.
        latest_factor: λ ≥ 1: a new group's deadline is λ times as far away as its expected arrival.
        speed_momentum: Weight of the newest visit in a client's seconds per step, in (0, 1].

    Attributes:
        closing: The number of the group that closes the buffer now.
    """

    def __init__(self, steps: tuple[int, int], latest_factor: float, speed_momentum: float) -> None:
        self.steps = steps
        self.latest_factor = latest_factor
        self.speed_momentum = speed_momentum

    def start(self, run: RunFacts) -> None:
        super().start(run)
        self._number = 0
        self._next_group = 0
        self.closing = -1
        self._arrival: dict[int, float] = {}  # by open group
        self._latest: dict[int, float] = {}
        self._awaited: dict[int, int] = {}  # the group of each client at work
        self._waiting: dict[int, int] = {}  # the group of each client that was heard before its group closed
        self._began: dict[int, float] = {}  # seconds
        self._step_seconds: dict[int, float] = {}

    @property
    def number(self) -> int:
        return self._number

    def slots(self) -> int:
        return self.clients - self.at_work - len(self._waiting)

    def returns_in(self, client: int) -> int:
        return self._number + (client in self._waiting)

    def group_of(self, client: int, now: float) -> int | None:
        """Return the group in which the client's update counts; None if it is late."""
        group = self._awaited.get(client)
        return group if group in self._latest and now <= self._latest[group] else None

    def choose(self, client: int, now: float) -> Place:
        """Return the client's steps and group if it begins now."""
        least, most = self.steps
        if client not in self._step_seconds:
            return Place(most)
        seconds = self._step_seconds[client]
        open_groups = [group for group, arrival in self._arrival.items() if arrival > -math.inf]
        fits = [(_steps(self._arrival[group] - now, seconds), group) for group in open_groups]
        steps, group = max(((steps, group) for steps, group in fits if least <= steps <= most), default=(0, None))
        if group is not None:
            return Place(int(steps), group)
        # A new group arrives when another group would, if that began its next visit at its deadline and its fastest
        # member took the most steps: then the two can become one group.
        meetings = [
            self._latest[group] + most * self._fastest(group) for group in open_groups if now < self._latest[group]
        ]
        fitting = [steps for meeting in meetings if (steps := _steps(meeting - now, seconds)) <= most]
        steps = max(least, int(max(fitting))) if fitting else most
        return Place(steps, None, now + steps * seconds, now + steps * seconds * self.latest_factor)

    def _fastest(self, group: int) -> float:
        members = [client for table in (self._awaited, self._waiting) for client, one in table.items() if one == group]
        return min((self._step_seconds[client] for client in members), default=math.inf)

    def enter(self, client: int, place: Place, now: float) -> None:
        """Record the place of a client that was just assigned."""
        self._leave(client)
        group = place.group
        if group is None:
            group, self._next_group = self._next_group, self._next_group + 1
            self._arrival[group], self._latest[group] = place.arrival, place.latest
        self._awaited[client] = group
        self._began[client] = now

    def assign(self, client: int, version: int) -> None:
        if client in self._waiting:
            raise ValueError(f"client {client} cannot be assigned before its group has arrived")
        super().assign(client, version)

    def measure(self, client: int, steps: int, now: float) -> None:
        """Update the client's seconds per step by the visit that ends now."""
        if self.group_of(client, now) is None:
            self._leave(client)
        if steps:
            seconds = (now - self._began[client]) / steps
            share = self.speed_momentum if client in self._step_seconds else 1.0
            self._step_seconds[client] = (1 - share) * self._step_seconds.get(client, 0.0) + share * seconds

    def hear(self, client: int) -> bool:
        super().hear(client)
        group = self._awaited.pop(client, None)
        if group is None:
            self._number += 1
            return False
        self._waiting[client] = group
        return self._close_if_complete(group)

    def lose(self, client: int, version: int) -> bool:
        if not super().lose(client, version):
            return False
        group = self._leave(client)
        if group is not None and self._close_if_complete(group):
            return True
        self._number += 1
        return False

    def _leave(self, client: int) -> int | None:
        """Take a client out of its group; return the group if it is open and not empty."""
        group = self._awaited.pop(client, None)
        if group is None or group not in self._latest:
            return None
        if group in self._awaited.values() or group in self._waiting.values():
            return group
        self._close_group(group)
        return None

    def _close_if_complete(self, group: int) -> bool:
        return group not in self._awaited.values() and self._close_group(group)

    def _close_group(self, group: int) -> bool:
        """Close a group; return whether one of its members was heard."""
        del self._arrival[group], self._latest[group]
        heard = [client for client, one in self._waiting.items() if one == group]
        for client in heard:
            del self._waiting[client]
        if heard:
            self._number += 1
            self.closing = group
        return bool(heard)

    def deadline(self) -> float:
        """Return the earliest deadline of a group."""
        return min(self._latest.values(), default=math.inf)

    def expire(self, now: float) -> bool:
        """Close groups whose deadlines have passed, until one closes the buffer."""
        due = sorted((latest, group) for group, latest in self._latest.items() if latest <= now)
        return any(self._close_group(group) for _, group in due)

    def state_dict(self) -> dict[str, Any]:
        numbers = {"number": self._number, "next_group": self._next_group, "closing": self.closing}
        tables = [saved(name, getattr(self, f"_{name}")) for name in _TABLES]
        return {
            **numbers,
            **{key: value for table in tables for key, value in table.items()},
            **prefixed("at_work", super().state_dict()),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._number, self._next_group, self.closing = state["number"], state["next_group"], state["closing"]
        for name in _TABLES:
            setattr(self, f"_{name}", restored(name, getattr(self, f"_{name}"), state))
        super().load_state_dict(under("at_work", state))


_TABLES = ("arrival", "latest", "awaited", "waiting", "began", "step_seconds")


def _steps(span: float, seconds: float) -> float:
    """Return the number of whole steps in a time span; ∞ if a step takes no time."""
    return math.floor(span / seconds + _ROUNDING) if seconds > 0 else math.inf
