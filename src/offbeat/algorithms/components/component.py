"""The components of an algorithm, which start with a run and are saved with it."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The facts of a run that its components start with.

    Attributes:
        length: The model's number of parameters d.
        clients: Number of clients N.
        data_weights: Each client's share of the objective, ``(N,)``; None for uniform.
        device: Where the model and the updates lie.
    """

    length: int
    clients: int
    data_weights: Tensor | None = None
    device: torch.device = _CPU

    def zeros(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return a vector of zeros, ``(d,)``, on the run's device."""
        return torch.zeros(self.length, dtype=dtype, device=self.device)


class Component(ABC):
    """A part of an algorithm.

    It is made from hyper-parameters, started with a run, and saved with the algorithm's state.
    """

    def check_run(self, run: RunFacts) -> None:
        """Raise ``ValueError`` if the component does not fit the run; nothing changes."""

    @abstractmethod
    def start(self, run: RunFacts) -> None:
        """Begin a run and forget any run before it."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return all that a restart needs, as a flat dict of tensors and plain values.

        Promises of vectors are resolved for it.
        """

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from ``state``, after ``start``."""
