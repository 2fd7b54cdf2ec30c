"""The queue of events in order of virtual time."""

import heapq
import math
from typing import Any

import torch


class Kind:
    """The kinds of events, in the order of events of the same instant.

    Every update that arrives at an instant is in before a lease or a period ends at it. Work is given out between
    ``AVAILABILITY`` and ``EVALUATION``, so from the newest model. An evaluation changes nothing.

    The kinds are plain numbers, since there are millions of events. A run in which only ``PASSIVE`` events are left
    goes nowhere; while an event of ``WORK`` is left, a client or a lease is waited for.
    """

    ARRIVAL = 0  # an upload is complete
    OFFER = 1  # a client has trained and asks whether its update is wanted
    LOSS = 2  # a visit ends without its update
    LAPSE = 3  # a lease ends, or the algorithm's deadline passes
    TICK = 4  # one of the algorithm's periods has passed
    DEPARTURE = 5  # a client goes offline
    AVAILABILITY = 6  # an idle client becomes available
    EVALUATION = 7

    WORK = frozenset((ARRIVAL, OFFER, LOSS, LAPSE))
    PASSIVE = frozenset((TICK, EVALUATION))


# A tuple is faster than a set.
_IS_WORK = tuple(kind in Kind.WORK for kind in range(Kind.EVALUATION + 1))
_IS_PASSIVE = tuple(kind in Kind.PASSIVE for kind in range(Kind.EVALUATION + 1))


Event = tuple[float, int, int, int]
"""Virtual seconds; the kind; a sequence number, which orders events of the same time and kind; the subject: the client,
or the number of the tick or evaluation."""


class EventQueue:
    """Events by time, then by kind, then in the order of ``put``.

    ``at_work`` is the number of events of ``Kind.WORK``.
    """

    def __init__(self) -> None:
        self.at_work = 0
        self._passive = 0
        self._heap: list[Event] = []
        self._sequence = 0

    @property
    def is_passive(self) -> bool:
        """True if only ticks and evaluations are left."""
        return len(self._heap) == self._passive

    def put(self, seconds: float, kind: int, subject: int = 0) -> None:
        """Put in an event at ``seconds``."""
        heapq.heappush(self._heap, (seconds, kind, self._sequence, subject))
        self._sequence += 1
        self.at_work += _IS_WORK[kind]
        self._passive += _IS_PASSIVE[kind]

    def take(self) -> Event:
        """Take out the next event."""
        event = heapq.heappop(self._heap)
        kind = event[1]
        self.at_work -= _IS_WORK[kind]
        self._passive -= _IS_PASSIVE[kind]
        return event

    @property
    def is_next_passive(self) -> bool:
        """True if the next event is a tick or an evaluation."""
        return bool(self._heap) and _IS_PASSIVE[self._heap[0][1]]

    def next_active_seconds(self) -> float:
        """Return the time of the next event that is not passive; else infinity.

        It looks at all events.
        """
        return min((event[0] for event in self._heap if not _IS_PASSIVE[event[1]]), default=math.inf)

    @property
    def next_seconds(self) -> float:
        """The time of the next event; infinite if there is none."""
        return self._heap[0][0] if self._heap else math.inf

    def is_over(self, instant: float) -> bool:
        """Return whether all events of this instant are done, except evaluations."""
        return not self._heap or self._heap[0][0] > instant or self._heap[0][1] == Kind.EVALUATION

    def state_dict(self) -> dict[str, Any]:
        """Return all that a restart needs."""
        seconds, kinds, sequences, subjects = zip(*self._heap, strict=True) if self._heap else ((),) * 4
        return {
            "seconds": torch.tensor(seconds, dtype=torch.float64),
            "numbers": torch.tensor([kinds, sequences, subjects], dtype=torch.int64),
            "sequence": self._sequence,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a saved queue."""
        kinds, sequences, subjects = state["numbers"].tolist()
        columns = (state["seconds"].tolist(), kinds, sequences, subjects)
        # A heap that was saved in its order is a heap again.
        self._heap = list(zip(*columns, strict=True))
        self._sequence = state["sequence"]
        self.at_work = sum(kind in Kind.WORK for kind in kinds)
        self._passive = sum(kind in Kind.PASSIVE for kind in kinds)
