from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

# As runs do; more threads than idle cores make these small models many times slower.
torch.set_num_threads(1)


def _bits(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.dtype, tuple(value.shape), value.numpy().tobytes()
    return type(value), value


@pytest.fixture(scope="session")
def same_state() -> Callable[[dict[str, Any], dict[str, Any]], bool]:
    """Return a function that says whether two state dicts are equal bit for bit."""

    def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
        return {key: _bits(value) for key, value in one.items()} == {key: _bits(value) for key, value in other.items()}

    return same
