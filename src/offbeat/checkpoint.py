"""States in one file, as safetensors.

Plain values are JSON in a tensor of bytes.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from offbeat.errors import OffbeatError
from offbeat.tensor_file import write_tensors
from offbeat_client.files import durable_file

# Increment it when the form of a state changes: a checkpoint of another format is refused.
FORMAT = "4"
_PLAIN = "plain values"


def write_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Write a flat dict of tensors and plain values, durably.

    A kill during the call leaves the old state or the new one.
    """
    tensors = {key: value for key, value in state.items() if isinstance(value, Tensor)}
    plain = json.dumps({key: value for key, value in state.items() if key not in tensors}).encode()
    tensors[_PLAIN] = torch.frombuffer(bytearray(plain), dtype=torch.uint8)
    with durable_file(path) as file:
        write_tensors(file, tensors, {"format": FORMAT})


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Return the state in a checkpoint; tuples become lists."""
    try:
        with safe_open(path, framework="pt") as file:
            form = (file.metadata() or {}).get("format")
            if form != FORMAT:
                raise OffbeatError(
                    f"{path} is a checkpoint of format {form}, this version of Offbeat reads format {FORMAT}: "
                    "go on with the version that wrote it, or run again with --fresh"
                )
            state: dict[str, Any] = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - it is not a dict
        state |= json.loads(bytes(state.pop(_PLAIN).numpy()))
    except (OSError, SafetensorError, LookupError, TypeError, ValueError):
        raise OffbeatError(f"{path} is broken: run again with --fresh") from None
    return state
