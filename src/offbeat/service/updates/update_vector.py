"""The vectors of updates, as tensors."""

import struct
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from offbeat_core.local_plan import Compression
from torch import Tensor

from offbeat.compression import COMPRESSORS, Compressor, Encoded, decode, wire_bytes
from offbeat.service.refusal import Refusal
from offbeat.service.updates.body_file import EntryKind
from offbeat.service.updates.body_form import ENTRY_BYTES, PREFIX, malformed
from offbeat.service.updates.update_body import Body, entries, layout_of

_COMPRESSED = struct.Struct("<4s8xI")  # a compressed body begins with magic and format, compressor, d
_TYPES = {"F32": ("<f4", torch.float32), "BF16": ("<i2", torch.bfloat16)}  # numpy has no bfloat16


def vector_of(body: Body) -> Tensor:
    """Return an update's vector; see ``StoredUpdate.resolve``."""
    if body.is_masked:
        return torch.from_numpy(_writable(entries(body, 0, 4 * body.length), "<i4"))
    if body.plan_compression is not None:
        return decompressed(body, body.plan_compression)
    kind, start = layout_of(body)
    return _vector(entries(body, start, body.length * ENTRY_BYTES[kind]), kind)


def _vector(found: "npt.NDArray[np.uint8]", kind: EntryKind) -> Tensor:
    """Return bytes as float32, without a copy if they are that, and writable."""
    on_disk, dtype = _TYPES[kind]
    return torch.from_numpy(_writable(found, on_disk)).view(dtype).float()


def _writable(found: "npt.NDArray[np.uint8]", on_disk: str) -> "npt.NDArray[Any]":
    """Return bytes as numbers that an algorithm may change; a copy only if need be."""
    return np.require(found.view(on_disk), requirements=["ALIGNED", "ENSUREARRAY", "WRITEABLE"])


def compressed_size(length: int, compression: Compression) -> int:
    """Return the bytes of the compressed body of an update ``(length,)``."""
    return wire_bytes(_compressor(compression), length)


def decompressed(body: Body, compression: Compression) -> Tensor:
    """Return the vector of a compressed body; ``Refusal`` if its form is wrong."""
    compressor = _compressor(compression)
    header = Encoded(compressor, body.length, b"").to_bytes()
    begin = body.read(0, min(body.size, len(header)))
    if not begin.startswith(header[:4]):
        if begin.startswith(b"{", PREFIX.size):
            raise Refusal("wrong-plan", f"the plan compresses by {compressor.name}: send its output")
        raise malformed(f"it must begin with {header[:4]!r}")
    if len(begin) < _COMPRESSED.size:
        raise malformed(f"it has only {len(begin)} bytes")
    length = _COMPRESSED.unpack_from(begin)[1]
    if length != body.length:
        raise Refusal("wrong-shape", f"the update must be of shape ({body.length},), got shape ({length},)")
    if not header.startswith(begin):
        raise Refusal("wrong-plan", f"the plan compresses by {compressor}: the update must be made by that")
    size = wire_bytes(compressor, body.length)
    if body.size != size:
        raise malformed(f"it must have {size} bytes, got {body.size}")
    payload = bytes(body.read(len(header), size - len(header)))
    try:
        return decode(Encoded(compressor, body.length, payload))
    except ValueError as error:
        raise malformed(str(error)) from None


def _compressor(compression: Compression) -> Compressor:
    return COMPRESSORS[compression.name](**dict(compression.parameters))
