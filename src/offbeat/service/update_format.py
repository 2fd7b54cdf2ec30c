"""An update on the wire: the ``Offbeat-Update`` header, and the body as it lies in a file; nothing in it is trusted."""

import json
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from offbeat.algorithms.base import Compression, LocalPlan
from offbeat.algorithms.checks import LARGEST_COUNT
from offbeat.compression import COMPRESSORS, Compressor, Encoded, decode, wire_bytes
from offbeat.service.refusal import Refusal

_LARGEST_HEAD = 4096  # characters of the Offbeat-Update header
_LARGEST_HEADER = 4096  # bytes of a safetensors file's JSON
_LARGEST_NUMBER = 2**63 - 1  # that a database holds
_CHUNK = 2**20  # entries that are looked at together
_PREFIX = struct.Struct("<Q")  # a safetensors file begins with the size of its JSON
_COMPRESSED = struct.Struct("<4s8xI")  # a compressed body begins with magic and format, compressor, d
_TYPES = {"F32": torch.float32, "BF16": torch.bfloat16}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}
_ON_DISK = {torch.float32: "<f4", torch.bfloat16: "<i2"}  # numpy has no bfloat16

_Number = Annotated[int, Field(ge=0, le=_LARGEST_NUMBER, description="a whole number of at least 0")]
_Seconds = Annotated[
    Annotated[float, Field(ge=0)] | None, Field(description="a finite number of at least 0, null, or left out")
]


class UpdateHead(BaseModel):
    """What the ``Offbeat-Update`` header says of an update; see ``docs/protocol.md``."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    version: _Number
    bytes: Annotated[int, Field(ge=1, le=_LARGEST_NUMBER, description="a whole number of at least 1")]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", description="64 hexadecimal digits in lower case")]
    examples: Annotated[int, Field(ge=1, le=LARGEST_COUNT, description=f"a whole number in 1 … {LARGEST_COUNT}")]
    steps: Annotated[int, Field(ge=0, le=LARGEST_COUNT, description=f"a whole number in 0 … {LARGEST_COUNT}")]
    normaliser: Annotated[
        float, Field(ge=0, le=torch.finfo(torch.float32).max, description="a number of at least 0, finite in 32 bits")
    ]
    since: Annotated[_Number | None, Field(description="a whole number of at least 0, or null")]
    step_seconds: _Seconds = None
    upload_seconds: _Seconds = None


def parse_head(text: str | None) -> UpdateHead:
    """Return what the header says.

    Raises:
        Refusal: ``malformed-request``: it is missing, longer than 4096 characters, or not what the protocol says.
    """
    if text is None:
        raise _bad_head("is missing: send one line of JSON that describes the update")
    if len(text) > _LARGEST_HEAD:
        raise _bad_head(f"must have at most {_LARGEST_HEAD} characters, got {len(text)}")
    try:
        values = _json_object(text)
    except ValueError as error:
        raise _bad_head(f"must be one JSON object: {error}") from None
    for key in values:
        if key not in UpdateHead.model_fields:
            raise _bad_head(f"has an unknown key {_short(key)}: allowed are {', '.join(UpdateHead.model_fields)}")
    try:
        return UpdateHead.model_validate(values)
    except ValidationError as error:
        key = str(error.errors(include_input=False)[0]["loc"][0])
        raise _bad_head(f"is wrong: {key} must be {UpdateHead.model_fields[key].description}") from None


def largest_body(length: int, plan: LocalPlan) -> int:
    """Return the most bytes that the body of an update ``(length,)`` made by this plan may have."""
    if plan.compression is None:
        return _PREFIX.size + _LARGEST_HEADER + 4 * length
    return wire_bytes(_compressor(plan.compression), length)


def write_dense(file: BinaryIO, vector: Tensor) -> None:
    """Write an update that is not compressed, a safetensors file; the vector is not copied if it is contiguous.

    Args:
        file: Open for writing, buffered.
        vector: float32 or bfloat16 ``(d,)``, d ≥ 1, on the CPU.

    Raises:
        ValueError: The vector is none of that.
    """
    if vector.dtype not in _NAMES or vector.dim() != 1 or not len(vector):
        shape = tuple(vector.shape)
        raise ValueError(f"the vector must be float32 or bfloat16 of shape (d,), got {vector.dtype} of shape {shape}")
    size = len(vector) * vector.itemsize
    header = json.dumps({"update": {"dtype": _NAMES[vector.dtype], "shape": [len(vector)], "data_offsets": [0, size]}})
    header += " " * (-len(header) % 8)  # so that the entries are aligned for whoever maps the file
    file.write(_PREFIX.pack(len(header)) + header.encode())
    file.write(vector.detach().contiguous().view(torch.uint8).numpy().data)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class StoredUpdate:
    """The vector of an update whose body lies in a file; a ``Promise``.

    Attributes:
        path: The file; it keeps these bytes for as long as a vector from it is in use.
        offset: Where the body begins.
        size: The body's bytes.
        length: The d that the vector must have.
        plan_compression: What the plan says of compression.
    """

    path: Path
    offset: int
    size: int
    length: int
    plan_compression: Compression | None

    def resolve(self) -> Tensor:
        """Return the vector, float32 ``(d,)``; what was sent as float32 is mapped from the file and not copied.

        Raises:
            Refusal: The body's form is wrong; the values are not looked at.
            OSError: The file is not there, or too short.
        """
        if self.plan_compression is not None:
            return _decompressed(self, _compressor(self.plan_compression))
        dtype, start = _dense_layout(self)
        # Copy on write is never a copy here; but torch warns of what cannot be written.
        mapped = np.memmap(self.path, _ON_DISK[dtype], "c", self.offset + start, (self.length,))
        return torch.from_numpy(np.require(mapped, requirements=["ALIGNED", "ENSUREARRAY"])).view(dtype).float()


def check_body(stored: StoredUpdate, max_norm: float | None) -> None:
    """Check all that can be wrong with an update's body, in little memory unless it is compressed.

    Args:
        stored: Where the body is.
        max_norm: Largest Euclidean norm that is accepted; None for any finite one.

    Raises:
        Refusal: ``malformed-update``, ``wrong-plan``, ``wrong-type``, ``wrong-shape``, ``not-finite`` or
            ``norm-too-large``.
        OSError: The file is not there, or too short.
    """
    squares = 0.0
    for part in _parts(stored):
        square = torch.dot(part, part).item()
        if not math.isfinite(square):
            if not part.isfinite().all():
                raise Refusal("not-finite", "the update contains NaN or infinity: training has diverged")
            square = torch.dot(part.double(), part.double()).item()
        squares += square
    if max_norm is not None and math.sqrt(squares) > max_norm:
        detail = f"the update's norm is {math.sqrt(squares):.6g}, allowed is at most {max_norm:.6g}"
        raise Refusal("norm-too-large", detail)


def _parts(stored: StoredUpdate) -> Iterator[Tensor]:
    """Yield the vector in float32, piece by piece."""
    if stored.plan_compression is not None:
        yield from _decompressed(stored, _compressor(stored.plan_compression)).split(_CHUNK)
        return
    dtype, start = _dense_layout(stored)
    for first in range(0, stored.length, _CHUNK):
        count = min(_CHUNK, stored.length - first)
        piece = _read(stored, start + first * dtype.itemsize, count * dtype.itemsize)
        yield torch.frombuffer(piece, dtype=dtype).float()


def _read(stored: StoredUpdate, start: int, size: int) -> bytearray:
    data = bytearray(size)
    with stored.path.open("rb") as file:
        file.seek(stored.offset + start)
        if file.readinto(data) != size:
            raise OSError(f"{stored.path} ends before byte {stored.offset + start + size}")
    return data


def _dense_layout(stored: StoredUpdate) -> tuple[torch.dtype, int]:
    """Return the entries' type and where in the body they begin."""
    begin = _read(stored, 0, min(stored.size, _PREFIX.size + _LARGEST_HEADER))
    if begin.startswith(b"OBC"):
        raise Refusal("wrong-plan", "the plan does not compress: send a safetensors file")
    if len(begin) < _PREFIX.size:
        raise _malformed(f"it has only {len(begin)} bytes")
    (header_size,) = _PREFIX.unpack_from(begin)
    start = _PREFIX.size + header_size
    if start > len(begin):
        raise _malformed(f"its header must have at most {_LARGEST_HEADER} bytes and end within the file")
    info = _tensor_info(begin[_PREFIX.size : start])
    kind, shape, offsets = info["dtype"], info["shape"], info["data_offsets"]
    if kind not in _TYPES:
        raise Refusal("wrong-type", f"the update must be float32 or bfloat16 (F32 or BF16), got {_short(kind)}")
    if shape != [stored.length]:
        got = str(tuple(shape))[:80]
        raise Refusal("wrong-shape", f"the update must be float32 of shape ({stored.length},), got shape {got}")
    dtype = _TYPES[kind]
    size = stored.length * dtype.itemsize
    if offsets != [0, size] or stored.size != start + size:
        raise _malformed(f"data_offsets must be [0, {size}], and that many bytes must follow the header")
    return dtype, start


def _tensor_info(header: bytearray) -> dict[str, Any]:
    """Return what a safetensors header says of its one tensor, whose parts have the right types."""
    try:
        tensors = _json_object(header.decode()) if header.startswith(b"{") else {}
    except ValueError as error:
        raise _malformed(f"its header must be a JSON object: {error}") from None
    metadata = tensors.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise _malformed("__metadata__ must be an object of strings")
    info = tensors.get("update")
    if len(tensors) != 1 or not isinstance(info, dict):
        raise _malformed("it must hold the one tensor update")
    if (
        info.keys() != {"dtype", "shape", "data_offsets"}
        or not isinstance(info["dtype"], str)
        or not _are_numbers(info["shape"])
        or not _are_numbers(info["data_offsets"])
    ):
        raise _malformed("the tensor must have a dtype, a shape and data_offsets, and nothing else")
    return info


def _decompressed(stored: StoredUpdate, compressor: Compressor) -> Tensor:
    header = Encoded(compressor, stored.length, b"").to_bytes()
    begin = _read(stored, 0, min(stored.size, len(header)))
    if not begin.startswith(header[:4]):
        if begin.startswith(b"{", _PREFIX.size):
            raise Refusal("wrong-plan", f"the plan compresses by {compressor.name}: send what that makes of the vector")
        raise _malformed(f"it must begin with {header[:4]!r}")
    if len(begin) < _COMPRESSED.size:
        raise _malformed(f"it has only {len(begin)} bytes")
    length = _COMPRESSED.unpack_from(begin)[1]
    if length != stored.length:
        raise Refusal("wrong-shape", f"the update must be of shape ({stored.length},), got shape ({length},)")
    if not header.startswith(begin):
        raise Refusal("wrong-plan", f"the plan compresses by {compressor}: the update must be made by that")
    size = wire_bytes(compressor, stored.length)
    if stored.size != size:
        raise _malformed(f"it must have {size} bytes, got {stored.size}")
    payload = bytes(_read(stored, len(header), size - len(header)))
    try:
        return decode(Encoded(compressor, stored.length, payload))
    except ValueError as error:
        raise _malformed(str(error)) from None


def _compressor(compression: Compression) -> Compressor:
    return COMPRESSORS[compression.name](**dict(compression.parameters))


def _json_object(text: str) -> dict[str, Any]:
    """Read one JSON object; a ``ValueError`` for anything else, repeated keys and deep nesting included."""
    try:
        values = json.loads(text, object_pairs_hook=_unique)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(values, dict):
        raise ValueError("no object")
    return values


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a key is there twice")
    return values


def _are_numbers(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


def _short(text: str) -> str:
    return ascii(text)[:40]


def _bad_head(problem: str) -> Refusal:
    return Refusal("malformed-request", f"the Offbeat-Update header {problem}")


def _malformed(problem: str) -> Refusal:
    return Refusal("malformed-update", f"the update is malformed: {problem}")
