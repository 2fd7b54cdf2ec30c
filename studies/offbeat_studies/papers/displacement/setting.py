"""Settings of the study: an algorithm, K, M and D, and the formulas for D and τ_u."""

from dataclasses import dataclass
from typing import Literal

from offbeat.algorithms import Algorithm
from offbeat.algorithms.components.weights import constant
from offbeat.algorithms.fedasync import FedAsync
from offbeat.algorithms.fedbuff import FedBuff
from offbeat.algorithms.fedfa import FedFa

Kind = Literal["fedbuff", "fedfa", "fedasync", "fedfa-params"]


@dataclass(frozen=True)
class Setting:
    """An algorithm with its buffer, concurrency and local step size.

    Attributes:
        kind: The algorithm.
        size: K, the updates in its buffer or window; 1 for FedAsync.
        at_work: M, the clients at work at the same time.
        lr: The local step size.
    """

    kind: Kind
    size: int
    at_work: int
    lr: float

    @property
    def delay(self) -> float:
        """τ_u in uploads: M − 1, and the wait (K − 1)/2."""
        return self.at_work - 1 + (self.size - 1) / 2

    @property
    def largest(self) -> float:
        """The largest displacement by an upload in units of ‖Δ‖."""
        if self.kind == "fedasync":
            return 1 / self.at_work  # α = 1
        return 1 / (self.at_work + (self.size - 1) / 2) if self.kind == "fedfa-params" else float("inf")

    @property
    def is_bounded(self) -> bool:
        """Report whether x < 1 at the reference step size."""
        return self.largest < float("inf")

    def algorithm(self, displacement: float) -> Algorithm:
        """Return the algorithm with this displacement by an upload, in units of ‖Δ‖.

        FedFa of params has only one, ``largest``.
        """
        if self.kind == "fedbuff":
            return FedBuff(
                buffer_size=self.size,
                server_lr=displacement * self.size,
                staleness=constant(),
                concurrency=self.at_work,
            )
        if self.kind == "fedfa":
            return FedFa(window=self.size, server_lr=displacement, concurrency=self.at_work)
        if self.kind == "fedfa-params":
            return FedFa(window=self.size, transmit="params", concurrency=self.at_work)
        alpha = displacement / (1 - displacement * (self.at_work - 1))  # D = α / (1 + α τ̄), τ̄ = M − 1
        return FedAsync(mixing_alpha=min(1.0, alpha), staleness=constant(), concurrency=self.at_work)
