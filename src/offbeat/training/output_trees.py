"""Outputs of models: a tensor, or tuples, lists and dicts of tensors."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor


def is_tree(outputs: Any, examples: int) -> bool:
    """Return whether outputs are tensors ``(examples, …)``, in any containers."""
    return all(isinstance(leaf, Tensor) and leaf.shape[:1] == (examples,) for leaf in leaves(outputs))


def leaves(outputs: Any) -> Iterator[Any]:
    """Yield what the containers hold."""
    if type(outputs) is dict:
        outputs = tuple(outputs.values())
    if not isinstance(outputs, (tuple, list)):
        yield outputs
        return
    for part in outputs:
        yield from leaves(part)


def joined(batches: Sequence[Any]) -> Any:
    """Return the outputs of several batches together."""
    return _mapped(lambda *parts: torch.cat(parts), *batches)


def copied(outputs: Any) -> Any:
    """Return a copy of outputs; of what is not a tree, the same object."""
    return _mapped(lambda part: part.clone() if isinstance(part, Tensor) else part, outputs)


def _mapped(function: Callable[..., Any], *trees: Any) -> Any:
    first = trees[0]
    if type(first) is dict:
        return {name: _mapped(function, *[tree[name] for tree in trees]) for name in first}
    if isinstance(first, (tuple, list)):
        parts = [_mapped(function, *each) for each in zip(*trees, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    return function(*trees)
