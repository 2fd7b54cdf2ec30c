"""Bodies of updates, in memory and in files; clients are not trusted."""

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from offbeat.algorithms.components import Compression
from offbeat.compression import COMPRESSORS, Compressor, Encoded, decode, wire_bytes
from offbeat.service.refusal import Refusal
from offbeat.service.updates.body_file import LARGEST_BEGINNING, Entries
from offbeat.service.updates.update_header import read_object, shortened

_LARGEST_HEADER = LARGEST_BEGINNING - 8  # bytes of a safetensors file's JSON
_CHUNK = 2**20  # entries checked at once
_MAPPED = 2**18  # bytes; files are read below, and mapped from here on
_PREFIX = struct.Struct("<Q")  # a safetensors file begins with the size of its JSON
_COMPRESSED = struct.Struct("<4s8xI")  # a compressed body begins with magic and format, compressor, d
_TYPES = {"F32": torch.float32, "BF16": torch.bfloat16}
_ON_DISK = {torch.float32: "<f4", torch.bfloat16: "<i2"}  # numpy has no bfloat16


def largest_body(length: int, compression: Compression | None) -> int:
    """Return the most bytes of the body of an update ``(length,)``."""
    if compression is None:
        return _PREFIX.size + _LARGEST_HEADER + 4 * length
    return wire_bytes(_compressor(compression), length)


@dataclass(frozen=True, slots=True)
class BufferedUpdate:
    """An update with its body, ``data``, in memory; for the rest see ``StoredUpdate``."""

    data: bytearray
    length: int
    plan_compression: Compression | None
    digest: str
    is_masked: bool = False

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return len(self.data)

    def read(self, start: int, size: int) -> bytearray:
        """Return ``size`` bytes of the body from ``start`` on."""
        return self.data[start : start + size]

    def resolve(self) -> Tensor:
        """Return the vector; see ``StoredUpdate``."""
        return _resolved(self)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class StoredUpdate:
    """An update with its body in a file; a ``Promise``.

    The body of a masked update or of an opened sum is d little-endian words of 32 bits.
    """

    path: Path  # it keeps these bytes while the update is in use
    size: int  # bytes of the body
    length: int  # the required d
    plan_compression: Compression | None
    digest: str  # of the body; see offbeat_core.digests
    is_masked: bool = False

    def read(self, start: int, size: int) -> bytearray:
        """Return ``size`` bytes of the body from ``start`` on."""
        data = bytearray(size)
        with self.path.open("rb") as file:
            file.seek(start)
            if file.readinto(data) != size:
                raise OSError(f"{self.path} ends before byte {start + size}")
        return data

    def resolve(self) -> Tensor:
        """Return the vector, float32 ``(d,)``, or int32 if it is masked.

        A large uncompressed vector is a memory map.

        Raises:
            Refusal: The body's form is wrong; the values are not checked.
            OSError: The file is missing, or too short.
        """
        return _resolved(_loaded(self))


Body = BufferedUpdate | StoredUpdate


def _resolved(body: Body) -> Tensor:
    if body.is_masked:
        return torch.from_numpy(_entries(body, 0, 4 * body.length).view("<i4"))
    if body.plan_compression is not None:
        return _decompressed(body, _compressor(body.plan_compression))
    dtype, start = _layout_of(body)
    return _vector(_entries(body, start, body.length * dtype.itemsize), dtype)


def norm_of(body: Body) -> float:
    """Return an update's Euclidean norm; NaN if an entry is not finite.

    This takes little memory unless the body is compressed.

    Raises:
        Refusal: ``malformed-update``, ``wrong-plan``, ``wrong-type`` or ``wrong-shape``.
        OSError: The file is missing, or too short.
    """
    squares = 0.0
    for part in _parts(body):
        square = torch.dot(part, part).item()
        if not math.isfinite(square):
            if not part.isfinite().all():
                return math.nan
            square = torch.dot(part.double(), part.double()).item()
        squares += square
    return math.sqrt(squares)


def check_norm(norm: float, max_norm: float | None) -> None:
    """Refuse a norm that is NaN, since an entry is not finite, or above ``max_norm``."""
    if math.isnan(norm):
        raise Refusal("not-finite", "the update contains NaN or infinity: training has diverged")
    if max_norm is not None and norm > max_norm:
        raise Refusal(
            "norm-too-large",
            f"the update's norm is {norm:.6g}, the limit {max_norm:.6g}: lower lr, or raise max_update_norm",
        )


def find_entries(beginning: bytes, size: int, length: int) -> Entries | None:
    """Return where an uncompressed body has its entries; None if it is malformed.

    It has ``size`` bytes and d = ``length`` entries.
    """
    try:
        dtype, start = _dense_layout(beginning, size, length)
    except Refusal:
        return None
    return Entries("F32" if dtype == torch.float32 else "BF16", start, size)


def check_form(body: Body) -> None:
    """Check the form of an update's body as ``norm_of``, but none of its values."""
    if body.plan_compression is not None:
        _decompressed(body, _compressor(body.plan_compression))
    else:
        _layout_of(body)


def _parts(body: Body) -> Iterator[Tensor]:
    """Yield the vector in float32 in pieces."""
    if body.plan_compression is not None:
        yield from _decompressed(body, _compressor(body.plan_compression)).split(_CHUNK)
        return
    body = _loaded(body)
    dtype, start = _layout_of(body)
    end = start + body.length * dtype.itemsize
    size = _CHUNK * dtype.itemsize
    for begin in range(start, end, size):
        yield _vector(_entries(body, begin, min(size, end - begin)), dtype)


def _loaded(body: Body) -> Body:
    """Return the body in memory if it is in a small file."""
    if isinstance(body, BufferedUpdate) or body.size >= _MAPPED:
        return body
    return BufferedUpdate(body.read(0, body.size), body.length, body.plan_compression, body.digest, body.is_masked)


def _entries(body: Body, start: int, size: int) -> "npt.NDArray[np.uint8]":
    """Return bytes of the body without a copy: they are mapped if it is in a file."""
    if isinstance(body, BufferedUpdate):
        return np.frombuffer(body.data, np.uint8, size, start)
    try:
        # Mode "c" never copies here, and torch warns of arrays that cannot be written.
        return np.memmap(body.path, np.uint8, "c", start, (size,))
    except ValueError:  # the file ends before
        raise OSError(f"{body.path} ends before byte {start + size}") from None


def _vector(entries: "npt.NDArray[np.uint8]", dtype: torch.dtype) -> Tensor:
    """Return bytes as float32, without a copy if they are aligned float32."""
    values = np.require(entries.view(_ON_DISK[dtype]), requirements=["ALIGNED", "ENSUREARRAY"])
    return torch.from_numpy(values).view(dtype).float()


def _layout_of(body: Body) -> tuple[torch.dtype, int]:
    return _dense_layout(bytes(body.read(0, min(body.size, LARGEST_BEGINNING))), body.size, body.length)


def _dense_layout(begin: bytes, size: int, length: int) -> tuple[torch.dtype, int]:
    """Return the type of the entries and where they begin; see ``find_entries``."""
    if begin.startswith(b"OBC"):
        raise Refusal("wrong-plan", "the plan does not compress: send a safetensors file")
    if len(begin) < _PREFIX.size:
        raise _malformed(f"it has only {len(begin)} bytes")
    (header_size,) = _PREFIX.unpack_from(begin)
    start = _PREFIX.size + header_size
    if start > len(begin):
        raise _malformed(f"its header must have at most {_LARGEST_HEADER} bytes and end within the file")
    return _layout(begin[_PREFIX.size : start], size - start, length), start


@lru_cache  # all updates of a run have one header, or few
def _layout(header: bytes, size: int, length: int) -> torch.dtype:
    """Return the type of d = ``length`` entries in ``size`` bytes after a header."""
    info = _tensor_info(header)
    kind, shape, offsets = info["dtype"], info["shape"], info["data_offsets"]
    if kind not in _TYPES:
        raise Refusal("wrong-type", f"the update must be float32 or bfloat16 (F32 or BF16), got {shortened(kind)}")
    if shape != [length]:
        got = str(tuple(shape))[:80]
        raise Refusal("wrong-shape", f"the update must be of shape ({length},), got shape {got}")
    dtype = _TYPES[kind]
    expected = length * dtype.itemsize
    if offsets != [0, expected] or size != expected:
        raise _malformed(f"data_offsets must be [0, {expected}], and that many bytes must follow the header")
    return dtype


def _tensor_info(header: bytes) -> dict[str, Any]:
    """Return the entry, of the right types, of the one tensor in a header."""
    try:
        tensors = read_object(header.decode()) if header.startswith(b"{") else {}
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


def _decompressed(body: Body, compressor: Compressor) -> Tensor:
    header = Encoded(compressor, body.length, b"").to_bytes()
    begin = body.read(0, min(body.size, len(header)))
    if not begin.startswith(header[:4]):
        if begin.startswith(b"{", _PREFIX.size):
            raise Refusal("wrong-plan", f"the plan compresses by {compressor.name}: send its output")
        raise _malformed(f"it must begin with {header[:4]!r}")
    if len(begin) < _COMPRESSED.size:
        raise _malformed(f"it has only {len(begin)} bytes")
    length = _COMPRESSED.unpack_from(begin)[1]
    if length != body.length:
        raise Refusal("wrong-shape", f"the update must be of shape ({body.length},), got shape ({length},)")
    if not header.startswith(begin):
        raise Refusal("wrong-plan", f"the plan compresses by {compressor}: the update must be made by that")
    size = wire_bytes(compressor, body.length)
    if body.size != size:
        raise _malformed(f"it must have {size} bytes, got {body.size}")
    payload = bytes(body.read(len(header), size - len(header)))
    try:
        return decode(Encoded(compressor, body.length, payload))
    except ValueError as error:
        raise _malformed(str(error)) from None


def _compressor(compression: Compression) -> Compressor:
    return COMPRESSORS[compression.name](**dict(compression.parameters))


def _are_numbers(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


def _malformed(problem: str) -> Refusal:
    return Refusal("malformed-update", f"the update is malformed: {problem}")
