"""Compressors that send every entry, in a few bits each."""

import struct
from dataclasses import dataclass
from numbers import Integral

import numpy as np
from numpy.typing import NDArray
from offbeat_core.compression.bit_packing import pack_flags, pack_numbers, packed_bytes, unpack_flags, unpack_numbers
from offbeat_core.compression.compressor import Compressor, check_finite, random_numbers
from offbeat_core.number_checks import is_number

# The one float32 at the beginning of the payload, a norm or a scale.
_FLOAT = struct.Struct("<f")


@dataclass(frozen=True)
class Qsgd(Compressor):
    """QSGD: ``C(v)_i = ‖v‖₂ · sgn(v_i) · ξ_i``, ξ_i random in {0, 1/s, …, 1}.

    Each ξ_i is one of 0, 1/s, 2/s, …, 1, at random so that E C(v) = v.

    With r = |v_i| s / ‖v‖₂ and ℓ = ⌊r⌋, ξ_i is (ℓ + 1)/s with probability r − ℓ, and ℓ/s otherwise. Its variance is
    E‖C(v) − v‖² ≤ min(d/s², √d/s) ‖v‖².

    An entry is sent as its signed level, from −s to s, in ``bits`` bits; s = 2^(bits − 1) − 1 uses them up. The paper
    continues with Elias codes, whose size depends on the values.

    Alistarh et al., "QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding" (2017), section 3.1.

    Args:
        bits: Bits an entry, sign included, 2 … 16; 2 bits are s = 1.

    Raises:
        ValueError: The bits are out of range.
    """

    bits: int

    name = "qsgd"
    parameters_format = struct.Struct("<B")

    def __post_init__(self) -> None:
        if not is_number(self.bits) or not isinstance(self.bits, Integral) or not 2 <= self.bits <= 16:
            raise ValueError(f"bits must be a whole number in 2 … 16, got {self.bits}")

    @property
    def levels(self) -> int:
        """The paper's s."""
        return 2 ** (self.bits - 1) - 1

    def pack(self, vector: NDArray[np.float32], seed: int) -> bytes:
        """Return the norm, then ξ_i s with its sign, plus s, for each entry."""
        # In float64, where no square overflows or vanishes; rounded to float32 it is still at least each |v_i|.
        with np.errstate(over="ignore"):
            norm = np.float32(np.sqrt(np.square(vector, dtype=np.float64).sum()))
        check_finite("the norm", norm)
        ratio = np.abs(vector, dtype=np.float64) * self.levels / (float(norm) or 1.0)
        level = np.floor(ratio)
        level += random_numbers(seed).random(len(vector)) < ratio - level
        codes = (np.copysign(level, vector) + self.levels).astype(np.uint32)
        return _FLOAT.pack(norm) + pack_numbers(codes, self.bits)

    def unpack(self, payload: bytes, length: int) -> NDArray[np.float32]:
        """Return ‖v‖₂ · (level / s) for each entry, rounded once to float32."""
        norm = _not_negative("the norm", payload)
        codes = unpack_numbers(payload[_FLOAT.size :], self.bits, length)
        if codes.max() > 2 * self.levels:
            raise ValueError(f"the levels must be in {-self.levels} … {self.levels}, got {codes.max() - self.levels}")
        return ((codes.astype(np.float64) - self.levels) * norm / self.levels).astype(np.float32)

    def payload_bytes(self, length: int) -> int:
        """Return the size of the norm and ``bits`` bits an entry."""
        return _FLOAT.size + packed_bytes(self.bits * length)

    def is_contraction(self, length: int) -> bool:
        """Return whether s ≥ √d: then the variance is at most ¼ ‖v‖².

        It is Σ p_i (1 − p_i) ‖v‖²/s² with p_i the probability of going up, and p(1 − p) ≤ ¼.
        """
        return self.levels**2 >= length


@dataclass(frozen=True)
class Sign(Compressor):
    """Signs with one scale: ``C(v) = sign(v) · ‖v‖₁/d``, sign(0) = 1.

    One bit an entry cannot express a third sign.

    ‖v − C(v)‖² = (1 − ‖v‖₁²/(d ‖v‖²)) ‖v‖² (Karimireddy et al., "Error Feedback Fixes SignSGD and other Gradient
    Compression Schemes", 2019). The seed is not used.
    """

    name = "sign"
    parameters_format = struct.Struct("<")

    def pack(self, vector: NDArray[np.float32], seed: int) -> bytes:
        """Return ‖v‖₁/d, then a bit for each entry, 1 where it is negative."""
        scale = np.abs(vector).sum(dtype=np.float64) / len(vector)
        return _FLOAT.pack(scale) + pack_flags(vector < 0)

    def unpack(self, payload: bytes, length: int) -> NDArray[np.float32]:
        """Return the scale with each entry's sign."""
        scale = np.float32(_not_negative("the scale", payload))
        return np.where(unpack_flags(payload[_FLOAT.size :], length), -scale, scale)

    def payload_bytes(self, length: int) -> int:
        """Return the size of the scale and a bit an entry."""
        return _FLOAT.size + packed_bytes(length)

    def is_contraction(self, length: int) -> bool:
        """Return True: ‖v‖₁ ≥ ‖v‖₂, so the factor is at most 1 − 1/d."""
        return True


def _not_negative(name: str, payload: bytes) -> float:
    (value,) = _FLOAT.unpack_from(payload)
    if not 0 <= value < float("inf"):
        raise ValueError(f"{name} must be finite and not negative, got {value}")
    return value
