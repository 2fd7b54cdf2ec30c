"""Flat state dicts of components, tensors, numbers and dicts of numbers by client."""

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor

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
