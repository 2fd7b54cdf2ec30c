"""Clients' updates as whole numbers, and the helper that opens their sums."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from offbeat.algorithms.components import Promise
from offbeat.algorithms.components.buffers.secret_sum import SecretSum
from offbeat.coordinator import Coordinator
from offbeat_client.privacy.envelope import RECORD_BYTES
from offbeat_client.privacy.fixed_point import quantise
from offbeat_client.privacy.share import update_factor


@dataclass(frozen=True)
class MaskedUpdates:
    """The rules by which clients make their updates whole numbers.

    Masks are left out here: a sum of masked vectors without the masks is the sum of the vectors, bit for bit.

    Attributes:
        clip_norm: C.
        step: The value of the whole number 1.
        largest: The largest whole number.
        seed: The run's seed, of which the rounding is made. Real clients use the operating system's random numbers.
        open_sum: Maps the number of a sum and the sum, int32 ``(d,)``, to what the helper releases.
    """

    clip_norm: float
    step: float
    largest: int
    seed: int
    open_sum: Callable[[int, Tensor], Tensor]

    @property
    def share_bytes(self) -> int:
        """Bytes of a masked upload beside its vector."""
        return RECORD_BYTES

    def promise(self, work: Promise, client: int, visit: int, divisor: float, scale: float) -> "_WholeNumbers":
        """Return the promise of a client's whole numbers, int32 ``(d,)``."""
        key = hashlib.sha256(f"rounding {self.seed} {client} {visit}".encode()).digest()
        return _WholeNumbers(work, self, divisor, scale, key)

    def open(self, now: float, coordinator: Coordinator) -> None:
        """Let the helper open the sums that are sealed, oldest first."""
        sums, buffer = coordinator.sealed_sums, coordinator.algorithm.buffer
        assert isinstance(buffer, SecretSum)
        while waiting := sums.waiting():
            sums.reveal(now, self.open_sum(sums.next_number, buffer.masked_sum(waiting[0])))


@dataclass(frozen=True)
class _WholeNumbers:
    """The promise of an update, divided, clipped, scaled and rounded."""

    work: Promise
    rules: MaskedUpdates
    divisor: float
    scale: float
    key: bytes

    def resolve(self) -> Tensor:
        vector, rules = self.work.resolve(), self.rules
        entries = vector.cpu().numpy()
        factor = update_factor(entries, divisor=self.divisor, scale=self.scale, clip_norm=rules.clip_norm)
        return torch.from_numpy(quantise(entries, rules.step, self.key, rules.largest, factor)).to(vector.device)
