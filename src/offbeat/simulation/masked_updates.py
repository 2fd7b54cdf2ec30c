"""Clients' updates as whole numbers, and the helper that opens their sums."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from offbeat_private.masks.envelope import RECORD_BYTES
from torch import Tensor

from offbeat.algorithms.components import Promise, Vector
from offbeat.algorithms.components.buffers.secret import SecretSum
from offbeat.coordinator import Coordinator
from offbeat.whole_numbers import Grid, WholeNumbers


@dataclass(frozen=True)
class MaskedUpdates:
    """The rules by which clients make their updates whole numbers.

    Masks are left out here: a sum of masked vectors without the masks is the sum of the vectors, bit for bit.

    Attributes:
        grid: C and the step.
        seed: The run's seed, of which the rounding is made. Real clients use the operating system's random numbers.
        open_sum: Maps the number of a sum and the sum, int32 ``(d,)``, to what the helper releases.
        sends_differences: Whether clients send differences to their last counted whole numbers, which they remember.
    """

    grid: Grid
    seed: int
    open_sum: Callable[[int, Tensor], Tensor]
    sends_differences: bool = False
    _counted: "dict[int, _Memory]" = field(default_factory=dict, init=False)  # each client's last

    @property
    def share_bytes(self) -> int:
        """Bytes of a masked upload beside its vector."""
        return RECORD_BYTES

    def promise(self, work: Promise, client: int, visit: int, divisor: float, scale: float) -> Promise:
        """Return the promise of a client's upload, int32 ``(d,)``."""
        key = hashlib.sha256(f"rounding {self.seed} {client} {visit}".encode()).digest()
        numbers = WholeNumbers(work, self.grid, divisor, scale, key)
        if not self.sends_differences:
            return numbers
        # The sum with its last update is open, so that is resolved.
        last = self._counted.get(client)
        return _Difference(_Memory(numbers), None if last is None else last.resolve())

    def note_counted(self, client: int, sent: Promise) -> None:
        """Let a client remember the whole numbers of a counted update."""
        if isinstance(sent, _Difference):
            self._counted[client] = sent.numbers

    def open(self, now: float, coordinator: Coordinator) -> None:
        """Let the helper open the sums that are sealed, oldest first."""
        sums, buffer = coordinator.sealed_sums, coordinator.algorithm.buffer
        assert isinstance(buffer, SecretSum)
        while waiting := sums.waiting():
            sums.reveal(now, self.open_sum(sums.next_number, buffer.masked_sum(waiting[0])))

    def state_dict(self) -> dict[str, Any]:
        """Return the clients' memories, by client; trains what is needed for them."""
        return {str(client): memory.resolve() for client, memory in self._counted.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from saved memories."""
        self._counted.clear()
        self._counted.update((int(client), _Memory(numbers.clone())) for client, numbers in state.items())


class _Memory:
    """A client's whole numbers, or their promise until it is resolved."""

    def __init__(self, numbers: Vector) -> None:
        self._numbers = numbers

    def resolve(self) -> Tensor:
        if not isinstance(self._numbers, Tensor):
            self._numbers = self._numbers.resolve()
        return self._numbers


@dataclass(frozen=True)
class _Difference:
    """The promise of the difference to a client's last counted whole numbers."""

    numbers: _Memory
    last: Tensor | None

    def resolve(self) -> Tensor:
        numbers = self.numbers.resolve()
        return numbers if self.last is None else numbers - self.last
