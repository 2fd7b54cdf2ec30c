"""The base class of compressors, the bytes' header, and error feedback.

The header, little-endian: ``OBC``, the format's version (1 byte), the compressor's name (8 bytes, filled up with
zeros), d (4 bytes), the compressor's parameters. The payload follows, whose size depends on the compressor and d alone.
"""

import math
import struct
from abc import ABC, abstractmethod
from dataclasses import asdict, astuple, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from offbeat_core import randomness

LARGEST_LENGTH = 2**31 - 1
"""The largest d."""

_HEADER = struct.Struct("<3sB8sI")
_MAGIC = b"OBC"
_VERSION = 1


@dataclass(frozen=True)
class Compressor(ABC):
    """A way to send a vector in fewer bytes; the fields are its parameters."""

    name: ClassVar[str]  # as in a configuration, at most 8 letters
    parameters_format: ClassVar[struct.Struct]  # of the parameters in the header, in the order of the fields

    @property
    def parameters(self) -> dict[str, Any]:
        """The compressor's own parameters by name."""
        return asdict(self)

    def encode(self, vector: ArrayLike, seed: int) -> "Encoded":
        """Return the compressed form of ``vector``.

        Args:
            vector: float32 ``(d,)``, 1 ≤ d < 2³¹, finite; not changed. A torch tensor on the CPU, without gradient, is
                not copied.
            seed: The seed of the random numbers, 0 ≤ seed < 2⁶⁴; each vector should have another.

        Raises:
            ValueError: The vector or the seed is invalid, or a sent value would be too large for float32.
        """
        array = np.asarray(vector)
        if array.dtype != np.float32 or array.ndim != 1:
            raise ValueError(f"the vector must be float32 of shape (d,), got {array.dtype} of shape {array.shape}")
        check_length(len(array))
        if not 0 <= seed < 2**64:
            raise ValueError(f"seed must be in 0 … 2⁶⁴ − 1, got {seed}")
        # The smallest and the largest entry are NaN if any entry is.
        if not math.isfinite(array.min()) or not math.isfinite(array.max()):
            raise ValueError("the vector contains NaN or infinity")
        return Encoded(self, len(array), self.pack(array, seed))

    @abstractmethod
    def pack(self, vector: NDArray[np.float32], seed: int) -> bytes:
        """Return the payload for a finite vector ``(d,)``."""

    @abstractmethod
    def unpack(self, payload: bytes, length: int) -> NDArray[np.float32]:
        """Return the vector ``(length,)``; ``ValueError`` if the payload is malformed."""

    @abstractmethod
    def payload_bytes(self, length: int) -> int:
        """Return the payload's size for a vector ``(length,)``, in bytes."""

    @abstractmethod
    def is_contraction(self, length: int) -> bool:
        """Return whether E‖v − C(v)‖² < ‖v‖² for every v ≠ 0 of this length."""


COMPRESSORS: dict[str, type[Compressor]] = {}
"""The compressors by name; the package's ``__init__`` fills it."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A compressed vector.

    Attributes:
        compressor: The compressor with its parameters.
        length: The vector's d.
        payload: The bytes after the header.
    """

    compressor: Compressor
    length: int
    payload: bytes

    def to_bytes(self) -> bytes:
        """Return the bytes that are sent, ``wire_bytes(compressor, length)`` of them."""
        return _header(self.compressor, self.length) + self.payload

    @staticmethod
    def from_bytes(data: bytes, length: int) -> "Encoded":
        """Read untrusted bytes.

        Each vector has one encoding only, so ``to_bytes`` returns ``data`` again. The sender chooses the compressor:
        compare ``compressor`` if it matters.

        Args:
            data: The bytes, of any size: the size is checked first.
            length: The d that the vector must have.

        Raises:
            ValueError: The bytes are not the encoding of a vector ``(length,)``.
        """
        check_length(length)
        compressor = _read_header(data, length)
        expected = wire_bytes(compressor, length)
        if len(data) != expected:
            raise ValueError(f"{compressor.name} sends {expected} bytes for d = {length}, got {len(data)}")
        encoded = Encoded(compressor, length, data[expected - compressor.payload_bytes(length) :])
        decode(encoded)  # checks the payload
        return encoded


def decode(encoded: Encoded) -> NDArray[np.float32]:
    """Return the vector C(v), float32 ``(d,)``.

    Raises:
        ValueError: The payload is malformed; one from ``encode`` or ``from_bytes`` never is.
    """
    return encoded.compressor.unpack(encoded.payload, encoded.length)


def wire_bytes(compressor: Compressor, length: int) -> int:
    """Return how many bytes are sent for any vector ``(length,)``, header included."""
    check_length(length)
    return _HEADER.size + compressor.parameters_format.size + compressor.payload_bytes(length)


def uncompressed_bytes(length: int) -> int:
    """Return the size of an uncompressed float32 vector ``(length,)``, in bytes."""
    check_length(length)
    return 4 * length


def check_length(length: int) -> None:
    """Raise ``ValueError`` unless 1 ≤ length ≤ ``LARGEST_LENGTH``."""
    if not 1 <= length <= LARGEST_LENGTH:
        raise ValueError(f"the vector's length must be in 1 … {LARGEST_LENGTH}, got {length}")


def check_finite(name: str, values: NDArray[np.float32] | np.float32) -> None:
    """Raise ``ValueError`` if any value is NaN or infinite."""
    if not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite in 32 bits")


def random_numbers(seed: int) -> np.random.Generator:
    """Return the source of a vector's random numbers."""
    # A seed belongs to one vector, so there are no purposes to distinguish; no ``Purpose`` is 0.
    return randomness.generator(seed, purpose=0)


def _header(compressor: Compressor, length: int) -> bytes:
    parameters = compressor.parameters_format.pack(*astuple(compressor))
    return _HEADER.pack(_MAGIC, _VERSION, compressor.name.encode(), length) + parameters


def _read_header(data: bytes, length: int) -> Compressor:
    if len(data) < _HEADER.size:
        raise ValueError(f"the data must have at least {_HEADER.size} bytes, got {len(data)}")
    magic, version, padded_name, claimed_length = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise ValueError(f"the data must begin with {_MAGIC!r}, got {magic!r}")
    if version != _VERSION:
        raise ValueError(f"the format's version must be {_VERSION}, got {version}")
    if claimed_length != length:
        raise ValueError(f"the vector's length must be {length}, got {claimed_length}")
    name = padded_name.rstrip(b"\0").decode("ascii", errors="backslashreplace")
    if name not in COMPRESSORS:
        raise ValueError(f"the compressor must be one of {', '.join(COMPRESSORS)}, got {name!r}")
    kind = COMPRESSORS[name]
    header_bytes = _HEADER.size + kind.parameters_format.size
    if len(data) < header_bytes:
        raise ValueError(f"the header for {name} has {header_bytes} bytes, got {len(data)}")
    compressor = kind(*kind.parameters_format.unpack_from(data, _HEADER.size))
    if _header(compressor, length) != data[:header_bytes]:
        raise ValueError(f"the header for {name} is not written as {name} writes it")
    return compressor


@np.errstate(over="ignore", invalid="ignore")  # ``encode`` refuses what is not finite
def compress_with_memory(
    compressor: Compressor, memory: NDArray[np.float32] | None, delta: NDArray[np.float32], seed: int
) -> tuple[NDArray[np.float32], NDArray[np.float32], Encoded]:
    """Return c, the client's new memory m, and c as bytes.

    The step is ``m ← m + Δ; c = C(m); m ← m − c``.

    Nothing is changed in place: the new memory replaces the old one only if the server counts the update.

    Seide et al., "1-Bit Stochastic Gradient Descent" (2014); Stich, Cordonnier and Jaggi, "Sparsified SGD with Memory"
    (2018), Algorithm 1; Karimireddy et al., "Error Feedback Fixes SignSGD and other Gradient Compression Schemes"
    (2019), Algorithm 2.

    Args:
        compressor: C, a contraction at this d; with any other compressor the memory grows without bound.
        memory: m, float32 ``(d,)``; None for zero.
        delta: Δ, float32 ``(d,)``.
        seed: As in ``Compressor.encode``.

    Raises:
        ValueError: C is not a contraction, the shapes differ, or m + Δ is not finite.
    """
    if not compressor.is_contraction(len(delta)):
        name = f"{compressor.name}({', '.join(f'{key}={value}' for key, value in compressor.parameters.items())})"
        raise ValueError(f"error feedback needs a contraction, which {name} is not for d = {len(delta)}")
    if memory is not None and memory.shape != delta.shape:
        raise ValueError(f"the memory must have the update's shape {delta.shape}, got {memory.shape}")
    total = delta if memory is None else memory + delta
    encoded = compressor.encode(total, seed)
    sent = decode(encoded)
    return sent, total - sent, encoded
