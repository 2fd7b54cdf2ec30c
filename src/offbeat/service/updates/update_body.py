"""Bodies of updates, in memory and in files; clients are not trusted."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from offbeat_core.local_plan import Compression

from offbeat.service.refusal import Refusal
from offbeat.service.updates.body_file import LARGEST_BEGINNING, EntryKind, Squares
from offbeat.service.updates.body_form import ENTRY_BYTES, LARGEST_HEADER, PREFIX, dense_layout

if TYPE_CHECKING:
    from torch import Tensor

_CHUNK = 2**22  # bytes checked at once
_MAPPED = 2**18  # bytes; files are read below, and mapped from here on


def largest_body(length: int, compression: Compression | None) -> int:
    """Return the most bytes of the body of an update ``(length,)``."""
    if compression is None:
        return PREFIX.size + LARGEST_HEADER + 4 * length
    # Here, so that a front needs no PyTorch unless updates are compressed.
    from offbeat.service.updates.update_vector import compressed_size

    return compressed_size(length, compression)


@dataclass(frozen=True, slots=True)
class BufferedUpdate:
    """An update with its body, ``data``, in memory; for the rest see ``StoredUpdate``."""

    data: bytes | bytearray
    length: int
    plan_compression: Compression | None
    digest: str
    is_masked: bool = False

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return len(self.data)

    def read(self, start: int, size: int) -> bytes | bytearray:
        """Return ``size`` bytes of the body from ``start`` on."""
        return self.data[start : start + size]

    def resolve(self) -> "Tensor":
        """Return the vector; see ``StoredUpdate``.

        It is a copy unless ``data`` can be written.
        """
        return _vector_of(self)


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

    def resolve(self) -> "Tensor":
        """Return the vector, float32 ``(d,)``, or int32 if it is masked.

        A large uncompressed vector is a memory map.

        Raises:
            Refusal: The body's form is wrong; the values are not checked.
            OSError: The file is missing, or too short.
        """
        return _vector_of(loaded(self))


Body = BufferedUpdate | StoredUpdate


def norm_of(body: Body) -> float:
    """Return an update's Euclidean norm; NaN if an entry is not finite.

    This takes little memory unless the body is compressed.

    Raises:
        Refusal: ``malformed-update``, ``wrong-plan``, ``wrong-type`` or ``wrong-shape``.
        OSError: The file is missing, or too short.
    """
    if body.plan_compression is not None:
        found = _decompressed(body, body.plan_compression).numpy()
        kind: EntryKind = "F32"
    else:
        body = loaded(body)
        kind, start = layout_of(body)
        found = entries(body, start, body.length * ENTRY_BYTES[kind])
    squares, data = Squares(kind), found.view(np.uint8).data
    for begin in range(0, len(data), _CHUNK):
        squares.add(data[begin : begin + _CHUNK])
    return squares.norm()


def check_norm(norm: float, max_norm: float | None) -> None:
    """Refuse a norm that is NaN, since an entry is not finite, or above ``max_norm``."""
    if math.isnan(norm):
        raise Refusal("not-finite", "the update contains NaN or infinity: training has diverged")
    if max_norm is not None and norm > max_norm:
        raise Refusal(
            "norm-too-large",
            f"the update's norm is {norm:.6g}, the limit {max_norm:.6g}: lower lr, or raise max_update_norm",
        )


def check_form(body: Body) -> None:
    """Check the form of an update's body as ``norm_of``, but none of its values."""
    if body.plan_compression is not None:
        _decompressed(body, body.plan_compression)
    else:
        layout_of(body)


def loaded(body: Body) -> Body:
    """Return the body in memory if it is in a small file."""
    if isinstance(body, BufferedUpdate) or body.size >= _MAPPED:
        return body
    return BufferedUpdate(body.read(0, body.size), body.length, body.plan_compression, body.digest, body.is_masked)


def entries(body: Body, start: int, size: int) -> "npt.NDArray[np.uint8]":
    """Return bytes of the body without a copy: they are mapped if it is in a file."""
    if isinstance(body, BufferedUpdate):
        return np.frombuffer(body.data, np.uint8, size, start)
    try:
        # Mode "c" never copies here, and torch warns of arrays that cannot be written.
        return np.memmap(body.path, np.uint8, "c", start, (size,))
    except ValueError:  # the file ends before
        raise OSError(f"{body.path} ends before byte {start + size}") from None


def layout_of(body: Body) -> tuple[EntryKind, int]:
    """Return the type of an uncompressed body's entries, and where they begin.

    Raises:
        Refusal: Its form is wrong.
    """
    return dense_layout(bytes(body.read(0, min(body.size, LARGEST_BEGINNING))), body.size, body.length)


def _vector_of(body: Body) -> "Tensor":
    from offbeat.service.updates.update_vector import vector_of

    return vector_of(body)


def _decompressed(body: Body, compression: Compression) -> "Tensor":
    from offbeat.service.updates.update_vector import decompressed

    return decompressed(body, compression)
