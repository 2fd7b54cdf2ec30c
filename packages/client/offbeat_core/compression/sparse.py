"""Compressors that send some entries: their indices, then float32 values."""

import math
import struct
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from offbeat_core.compression.bit_packing import index_bytes, pack_indices, unpack_indices
from offbeat_core.compression.compressor import Compressor, check_finite, random_numbers


@dataclass(frozen=True)
class _Sparse(Compressor):
    share: float

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"share must be in (0, 1], got {self.share}")

    def kept(self, length: int) -> int:
        """Return how many of ``length`` = d entries are sent: k = max(1, ⌈share · d⌉)."""
        # Rounding first keeps 0.07 · 100 = 7.000000000000001 from sending one entry too many.
        return max(1, math.ceil(round(self.share * length, 9)))

    def pack(self, vector: NDArray[np.float32], seed: int) -> bytes:
        """Return the indices, then the values."""
        indices = self.choose(vector, seed)
        values = self.scale(vector[indices], len(vector))
        return pack_indices(indices, len(vector)) + values.astype("<f4").tobytes()

    def unpack(self, payload: bytes, length: int) -> NDArray[np.float32]:
        """Return the values in their places, 0 elsewhere."""
        kept = self.kept(length)
        boundary = index_bytes(kept, length)
        vector = np.zeros(length, np.float32)
        values = np.frombuffer(payload[boundary:], "<f4")
        check_finite("the values", values)
        vector[unpack_indices(payload[:boundary], kept, length)] = values
        return vector

    def payload_bytes(self, length: int) -> int:
        """Return the size of k indices and 4k bytes of values."""
        kept = self.kept(length)
        return index_bytes(kept, length) + 4 * kept

    @abstractmethod
    def choose(self, vector: NDArray[np.float32], seed: int) -> NDArray[np.int64]:
        """Return the indices of the k entries that are sent, in increasing order."""

    def scale(self, values: NDArray[np.float32], length: int) -> NDArray[np.float32]:
        """Return the sent values for these entries of a vector ``(length,)``."""
        return values


@dataclass(frozen=True)
class TopK(_Sparse):
    """The k = max(1, ⌈share · d⌉) entries of largest magnitude, the first of equals.

    ‖v − C(v)‖² ≤ (1 − k/d) ‖v‖² (Stich, Cordonnier and Jaggi, "Sparsified SGD with Memory", 2018, Lemma A.1). The
    seed is not used.

    Args:
        share: δ, 0 < share ≤ 1.

    Raises:
        ValueError: The share is out of range.
    """

    name = "top_k"
    parameters_format = struct.Struct("<d")

    def choose(self, vector: NDArray[np.float32], seed: int) -> NDArray[np.int64]:
        """Return the indices of the k largest magnitudes.

        These are all above the k-th largest magnitude, and the first ones equal to it, up to k.
        """
        count = self.kept(len(vector))
        magnitude = np.abs(vector)
        threshold = np.partition(magnitude, len(vector) - count)[len(vector) - count]
        chosen = magnitude > threshold
        missing = count - np.count_nonzero(chosen)
        chosen[np.flatnonzero(magnitude == threshold)[:missing]] = True
        return np.flatnonzero(chosen)

    def is_contraction(self, length: int) -> bool:
        """Return True: the largest entry is always among the k."""
        return True


@dataclass(frozen=True)
class RandomK(_Sparse):
    """k = max(1, ⌈share · d⌉) entries, each set of k as likely as any other.

    Scaled, each entry that is sent is multiplied by d/k, so that E C(v) = v and E‖v − C(v)‖² = (d/k − 1) ‖v‖². Not
    scaled, E‖v − C(v)‖² = (1 − k/d) ‖v‖² (Stich, Cordonnier and Jaggi, "Sparsified SGD with Memory", 2018).

    The indices are sent and not the seed, so that readers do not need this program's random numbers.

    Args:
        share: δ, 0 < share ≤ 1.
        scaled: Whether entries are multiplied by d/k.

    Raises:
        ValueError: The share is out of range, or ``scaled`` is neither true nor false.
    """

    scaled: bool = True

    name = "random_k"
    parameters_format = struct.Struct("<d?")

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.scaled) is not bool:
            raise ValueError(f"scaled must be true or false, got {self.scaled!r}")

    def choose(self, vector: NDArray[np.float32], seed: int) -> NDArray[np.int64]:
        """Return k indices drawn without replacement."""
        chosen = random_numbers(seed).choice(len(vector), self.kept(len(vector)), replace=False, shuffle=False)
        return np.sort(chosen)

    def scale(self, values: NDArray[np.float32], length: int) -> NDArray[np.float32]:
        """Return the values times d/k, or as they are."""
        if not self.scaled:
            return values
        with np.errstate(over="ignore"):
            scaled = (values.astype(np.float64) * length / self.kept(length)).astype(np.float32)
        check_finite("the values times d/k", scaled)
        return scaled

    def is_contraction(self, length: int) -> bool:
        """Return whether entries are sent as they are."""
        return not self.scaled
