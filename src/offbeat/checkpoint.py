"""States in one file, as safetensors.

Plain values are JSON in a tensor of bytes.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from offbeat_core.files import durable_file
from safetensors import safe_open
from torch import Tensor

from offbeat.checkpoint_values import BROKEN, FORMAT, PLAIN, broken, read_values
from offbeat.tensor_file import write_tensors


def write_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Write a flat dict of tensors and plain values, durably.

    A kill during the call leaves the old state or the new one.
    """
    tensors = {key: value for key, value in state.items() if isinstance(value, Tensor)}
    plain = json.dumps({key: value for key, value in state.items() if key not in tensors}).encode()
    tensors[PLAIN] = torch.frombuffer(bytearray(plain), dtype=torch.uint8)
    with durable_file(path) as file:
        write_tensors(file, tensors, {"format": FORMAT})


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Return the state in a checkpoint; tuples become lists."""
    values = read_values(path)
    try:
        with safe_open(path, framework="pt") as file:
            names = set(file.keys()) - {PLAIN}
            return {name: file.get_tensor(name) for name in sorted(names)} | values
    except BROKEN:
        raise broken(path) from None
