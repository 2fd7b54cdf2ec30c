import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings
from torch import Tensor

# As runs do; more threads than idle cores make these small models many times slower.
torch.set_num_threads(1)

# A busy machine is no reason to fail; and in CI a commit passes or fails the same way each time.
settings.register_profile(
    "offbeat", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="CI" in os.environ
)
settings.load_profile("offbeat")


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
