"""Private sums: the calls about sealed ones, and the scale of masked updates."""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import torch
from offbeat_core.local_plan import normaliser
from offbeat_private.limits import SMALLEST_SCALE
from torch import Tensor

from offbeat.algorithms.components import Algorithm, ClosedBuffer, LocalPlan, Update, Vector
from offbeat.coordinator.coordinator_state import CoordinatorState

SEALED_SUM_CALLS = frozenset(("reveal", "discard", "withdraw"))
"""The calls that are recorded, and replayed under their names."""


class _Note(Protocol):
    def __call__(self, name: str, **arguments: Any) -> None: ...


class SealedSums:
    """The sums that are closed but not opened yet, oldest first.

    The driver asks a helper to open the oldest one, then calls ``reveal``, ``discard`` or ``withdraw``. Each
    call raises ``ValueError`` if no sum is sealed, and nothing has changed.

    Args:
        state: The coordinator's.
        note: Records a call.
    """

    def __init__(self, state: CoordinatorState, note: _Note) -> None:
        self._algorithm = state.algorithm
        self._state = state
        self._note = note

    def waiting(self) -> Sequence[ClosedBuffer]:
        """Return the sealed sums, oldest first."""
        return self._algorithm.sealed

    @property
    def next_number(self) -> int:
        """The number, 1, 2, …, of the oldest sealed sum, or of the next one."""
        return self._algorithm.opened + 1

    def reveal(self, now: float, opened: Vector) -> bool:
        """Make the version of the oldest sealed sum; return True.

        Args:
            now: Seconds.
            opened: The sum without masks, int32 ``(d,)``, or a promise of it.

        Raises:
            ValueError: Also if an entry is beyond what a sum can be.
        """
        self._algorithm.now = now
        new_version = self._algorithm.reveal(opened if isinstance(opened, Tensor) else opened.resolve())
        self._state.follow_round()
        self._note("reveal", now=now, opened=opened)
        return new_version

    def discard(self, now: float) -> None:
        """Forget the oldest sealed sum, which was opened and is out of range.

        Its clients come again in different sums; a client of two such sums does not come again.
        """
        self._algorithm.now = now
        updates = self._oldest_updates()
        self._algorithm.discard()
        self._state.candidates.note_failure([update.client for update in updates], self._algorithm.opened)
        self._take_back(updates)
        self._note("discard", now=now)

    def withdraw(self, now: float, client: int) -> None:
        """Take a client's update out of the oldest sealed sum, which the helper refused.

        Raises:
            ValueError: Also if the client is not in it.
        """
        self._algorithm.now = now
        updates = self._oldest_updates()
        self._algorithm.withdraw(client)
        self._state.candidates.note_numbers([update.client for update in updates if update.client != client])
        self._take_back([update for update in updates if update.client == client])
        self._note("withdraw", now=now, client=client)

    def _oldest_updates(self) -> list[Update]:
        return [entry.update for closed in self._algorithm.sealed[:1] for entry in closed.entries]

    def _take_back(self, updates: Iterable[Update]) -> None:
        """Let clients send differences to their updates before these.

        These are in no version.
        """
        if self._algorithm.payload == "difference":
            for update in updates:
                self._state.visits.return_to(update.client, update.since)
        self._state.follow_round()


def upload_scale(algorithm: Algorithm, client: int, version: int, plan: LocalPlan) -> float:
    """Return the factor of an update whose upload begins now.

    A ``ValueError`` if it is above 1, which no client accepts.
    """
    scale = algorithm.scale(Update(client, version, torch.empty(0), 1, plan.steps, normaliser(plan), plan=plan))
    if not scale <= 1:
        raise ValueError(
            f"{algorithm.name} would count this update {scale:.6g} times, but clients mask updates of a weight of at "
            "most 1: lower the algorithm's weights"
        )
    return max(scale, SMALLEST_SCALE)
