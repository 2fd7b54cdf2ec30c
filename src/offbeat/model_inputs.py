"""Inputs of examples: one tensor or array, or several by name."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")
S = TypeVar("S")

Inputs = T | dict[str, T]
"""A model's argument, or its keyword arguments; the first dimension of each is the examples'."""

TOKENS = "input_ids"
"""The name of token numbers among inputs by name, as in Hugging Face's models."""


def map_inputs(function: Callable[..., S], inputs: Inputs[T], *others: Any) -> Inputs[S]:
    """Return a function's values, for each tensor and those of other inputs.

    All inputs have the same names.
    """
    if isinstance(inputs, dict):
        return {name: function(value, *(other[name] for other in others)) for name, value in inputs.items()}
    return function(inputs, *others)


def divide_inputs(function: Callable[[T], Iterable[T]], inputs: Inputs[T]) -> list[Inputs[T]]:
    """Return the parts into which a function divides each tensor."""
    if isinstance(inputs, dict):
        parts = zip(*(function(value) for value in inputs.values()), strict=True)
        return [dict(zip(inputs, part, strict=True)) for part in parts]
    return list(function(inputs))


def name_inputs(prefix: str, inputs: Inputs[T]) -> dict[str, T]:
    """Return the tensors as ``prefix``, or ``prefix.NAME`` for each name."""
    if isinstance(inputs, dict):
        return {f"{prefix}.{name}": value for name, value in inputs.items()}
    return {prefix: inputs}


def find_inputs(prefix: str, tensors: Mapping[str, T]) -> Inputs[T]:
    """Return the inputs that ``name_inputs`` has named.

    The mapping may hold other tensors, too.
    """
    if prefix in tensors:
        return tensors[prefix]
    start = f"{prefix}."
    return {name.removeprefix(start): value for name, value in tensors.items() if name.startswith(start)}


def token_numbers(inputs: Inputs[T]) -> T | None:
    """Return the tensor that may hold token numbers."""
    return inputs.get(TOKENS) if isinstance(inputs, dict) else inputs
