"""The form of an uncompressed body: one tensor in a safetensors file."""

import struct
from functools import lru_cache
from typing import Any

from offbeat.service.refusal import Refusal
from offbeat.service.updates.body_file import LARGEST_BEGINNING, Entries, EntryKind
from offbeat.service.updates.update_header import read_object, shortened

PREFIX = struct.Struct("<Q")
"""The beginning of a safetensors file: the size of its JSON."""

LARGEST_HEADER = LARGEST_BEGINNING - PREFIX.size
"""Bytes of the JSON, at most."""

ENTRY_BYTES: dict[EntryKind, int] = {"F32": 4, "BF16": 2}
"""Bytes of an entry of each type."""


def find_entries(beginning: bytes, size: int, length: int) -> Entries | None:
    """Return where an uncompressed body has its entries; None if it is malformed.

    It has ``size`` bytes and d = ``length`` entries.
    """
    try:
        kind, start = dense_layout(beginning, size, length)
    except Refusal:
        return None
    return Entries(kind, start, size)


def dense_layout(begin: bytes, size: int, length: int) -> tuple[EntryKind, int]:
    """Return the type of the entries and where they begin; see ``find_entries``."""
    if begin.startswith(b"OBC"):
        raise Refusal("wrong-plan", "the plan does not compress: send a safetensors file")
    if len(begin) < PREFIX.size:
        raise malformed(f"it has only {len(begin)} bytes")
    (header_size,) = PREFIX.unpack_from(begin)
    start = PREFIX.size + header_size
    if start > len(begin):
        raise malformed(f"its header must have at most {LARGEST_HEADER} bytes and end within the file")
    return _layout(begin[PREFIX.size : start], size - start, length), start


@lru_cache  # all updates of a run have one header, or few
def _layout(header: bytes, size: int, length: int) -> EntryKind:
    """Return the type of d = ``length`` entries in ``size`` bytes after a header."""
    info = _tensor_info(header)
    kind, shape, offsets = info["dtype"], info["shape"], info["data_offsets"]
    if kind not in ENTRY_BYTES:
        raise Refusal("wrong-type", f"the update must be float32 or bfloat16 (F32 or BF16), got {shortened(kind)}")
    if shape != [length]:
        got = str(tuple(shape))[:80]
        raise Refusal("wrong-shape", f"the update must be of shape ({length},), got shape {got}")
    expected = length * ENTRY_BYTES[kind]
    if offsets != [0, expected] or size != expected:
        raise malformed(f"data_offsets must be [0, {expected}], and that many bytes must follow the header")
    return kind


def _tensor_info(header: bytes) -> dict[str, Any]:
    """Return the entry, of the right types, of the one tensor in a header."""
    try:
        tensors = read_object(header.decode()) if header.startswith(b"{") else {}
    except ValueError as error:
        raise malformed(f"its header must be a JSON object: {error}") from None
    metadata = tensors.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise malformed("__metadata__ must be an object of strings")
    info = tensors.get("update")
    if len(tensors) != 1 or not isinstance(info, dict):
        raise malformed("it must hold the one tensor update")
    if (
        info.keys() != {"dtype", "shape", "data_offsets"}
        or not isinstance(info["dtype"], str)
        or not _are_numbers(info["shape"])
        or not _are_numbers(info["data_offsets"])
    ):
        raise malformed("the tensor must have a dtype, a shape and data_offsets, and nothing else")
    return info


def _are_numbers(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


def malformed(problem: str) -> Refusal:
    """Return the refusal of a body of a wrong form."""
    return Refusal("malformed-update", f"the update is malformed: {problem}")
