"""The components of an algorithm, and their flat state dicts."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
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

    def forget(self, client: int, most: int) -> list[float]:
        """Forget a client that will not come again.

        Its latest updates since the last release are taken out, at most so many, if each can be told from the others.

        Returns:
            The weights of the updates that were taken out; the tally ``examples`` where there is one.
        """
        return []

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return all that a restart needs, as a flat dict of tensors and plain values.

        Promises of vectors are resolved for it.
        """

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from ``state``, after ``start``."""


_PLAIN = (bool, int, float, str, type(None))


def prefixed(prefix: str, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``state`` with every key written as ``prefix.key``."""
    return {f"{prefix}.{key}": value for key, value in state.items()}


def under(prefix: str, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries whose keys begin with ``prefix.``, without the prefix."""
    return {key.removeprefix(f"{prefix}."): value for key, value in state.items() if key.startswith(f"{prefix}.")}


def saved(name: str, value: Any) -> dict[str, Any]:
    """Return an attribute's value as entries of a flat state dict."""
    if isinstance(value, Tensor):
        return {name: value.clone()}
    if isinstance(value, _PLAIN):
        return {name: value}
    if isinstance(value, dict):
        return prefixed(name, _numbers_state(name, value))
    if hasattr(value, "state_dict"):
        return prefixed(name, value.state_dict())
    raise TypeError(
        f"{name} = {type(value).__name__} cannot be saved: an algorithm's state is made of tensors, numbers, "
        "dicts of numbers, and components with a state_dict"
    )


def restored(name: str, value: Any, state: Mapping[str, Any]) -> Any:
    """Return an attribute's value from a state dict; a component is loaded in place."""
    if isinstance(value, dict):
        return dict(zip(*(state[f"{name}.{part}"].tolist() for part in ("keys", "values")), strict=True))
    if isinstance(value, (Tensor, *_PLAIN)):
        found = state[name]
        return found.clone() if isinstance(found, Tensor) else found
    value.load_state_dict(under(name, state))
    return value


def _numbers_state(name: str, numbers: Mapping[Any, Any]) -> dict[str, Tensor]:
    kinds = {type(entry) for pair in numbers.items() for entry in pair}
    if bool in kinds or not all(issubclass(kind, Real) for kind in kinds):
        raise TypeError(f"{name} cannot be saved: a dict in an algorithm's state has numbers for keys and values")
    # An empty tensor of floats would turn the keys that come back into floats.
    columns = {"keys": list(numbers), "values": list(numbers.values())}
    return {
        key: torch.tensor(column, dtype=torch.int64 if all(isinstance(n, Integral) for n in column) else torch.float64)
        for key, column in columns.items()
    }
