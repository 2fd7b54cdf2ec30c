"""Safetensors files, written from tensors in memory, and states in such files.

A state's plain values are JSON in a tensor of bytes.
"""

import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from offbeat_core.files import durable_file
from safetensors import safe_open
from torch import Tensor

from offbeat.checkpoint_values import BROKEN, FORMAT, PLAIN, broken, read_values

_PIECE = 1000  # entries of a list that are encoded at once
_PREFIX = struct.Struct("<Q")  # the file begins with the size of its JSON
_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def write_tensors(file: BinaryIO, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file with aligned entries.

    Tensors that are not contiguous, or not on the CPU, are copied one at a time.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    # The widest first, so that each begins at a multiple of its entries' size.
    ordered = sorted(tensors.items(), key=lambda item: -item[1].itemsize)
    for name, tensor in ordered:
        begin, end = end, end + tensor.nbytes
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write(_PREFIX.pack(len(text)) + text)
    for _, tensor in ordered:
        file.write(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)


def write_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Write a flat dict of tensors and plain values, durably.

    A kill during the call leaves the old state or the new one.
    """
    tensors = {key: value for key, value in state.items() if isinstance(value, Tensor)}
    plain = bytearray()
    for piece in _json_pieces({key: value for key, value in state.items() if key not in tensors}):
        plain += piece.encode()
    tensors[PLAIN] = torch.frombuffer(plain, dtype=torch.uint8)
    with durable_file(path) as file:
        write_tensors(file, tensors, {"format": FORMAT})


def _json_pieces(value: Any) -> Iterator[str]:
    """Yield a plain value's JSON in pieces.

    The encoder keeps all other threads from their work, so long lists are given to it a part at a time.
    """
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        for number, (key, part) in enumerate(value.items()):
            yield f"{', ' if number else '{'}{json.dumps(key)}: "
            yield from _json_pieces(part)
        yield "}" if value else "{}"
    elif isinstance(value, list | tuple) and len(value) > _PIECE:
        for begin in range(0, len(value), _PIECE):
            yield f"{', ' if begin else '['}{json.dumps(value[begin : begin + _PIECE])[1:-1]}"
        yield "]"
    else:
        yield json.dumps(value)


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Return the state in a checkpoint; tuples become lists."""
    values = read_values(path)
    try:
        with safe_open(path, framework="pt") as file:
            names = set(file.keys()) - {PLAIN}
            return {name: file.get_tensor(name) for name in sorted(names)} | values
    except BROKEN:
        raise broken(path) from None
