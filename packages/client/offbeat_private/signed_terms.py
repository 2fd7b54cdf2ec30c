"""The terms of a private run, which its helper signs: what all parts agreed to."""

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple, get_args

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from offbeat_core.local_plan import LocalPlan, normaliser
from offbeat_core.number_checks import check_count, check_not_negative
from offbeat_private.agreed_plan import AgreedPlan
from pydantic import ValidationError

Mechanism = Literal["independent", "banded"]
"""How the noise of different batches is correlated."""

MaskedPayload = Literal["delta", "difference"]
"""The content of masked vectors: quantised updates, or their differences to the client's last counted one."""

_LENGTHS = {"run": 16, "helper_key": 32}
_COUNTS = ("length", "buffer", "min_clients", "max_participations", "min_separation", "bands", "bits")
_LARGEST_FILE = 4096  # bytes; a real one has about 1,000
LARGEST_SUM = 1 << 30
"""The largest absolute value of a sum's entries, far from where 32 bits wrap around."""

NOISE_TAIL = 10
"""The standard deviations of noise that a sum leaves room for."""

_SIGNED = b"offbeat-terms-v1"


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of a run; their digest is part of every message.

    Attributes:
        run: The run's id, 16 bytes.
        helper_key: The helper's Ed25519 public key, 32 bytes.
        length: d, the parameters of the model.
        buffer: K, the most clients of a batch.
        min_clients: T, the fewest clients of a batch, 2 ≤ T ≤ K.
        clip_norm: C, the largest norm of an update, 1e-9 … 1e9.
        noise_multiplier: σ ≥ 0, the noise's standard deviation in units of the clip norm; 0 for masks alone.
        mechanism: ``independent`` noise, or ``banded``: correlated over batches.
        max_participations: k ≥ 1, in how many batches a client may be.
        min_separation: b ≥ 1, how many batches later a client may be in another.
        bands: p, how many rows of random numbers make the noise of a batch: 1 for independent noise, at most b.
        bits: Bits of a quantised number, 2 … 24; float32 holds such numbers exactly.
        local: The plans that clients carry out.
        normalise: Whether an update is divided by FedNova's a of its plan.
        payload: The content of a masked vector. Sums of differences have no noise.

    Raises:
        ValueError: A value is out of range.
    """

    run: bytes
    helper_key: bytes
    length: int
    buffer: int
    min_clients: int
    clip_norm: float
    noise_multiplier: float
    mechanism: Mechanism
    max_participations: int
    min_separation: int
    bands: int
    bits: int
    local: AgreedPlan
    normalise: bool = False
    payload: MaskedPayload = "delta"

    def __post_init__(self) -> None:
        for name, length in _LENGTHS.items():
            if len(getattr(self, name)) != length:
                raise ValueError(f"{name} must have {length} bytes, got {len(getattr(self, name))}")
        for name in _COUNTS:
            check_count(name, getattr(self, name))
        if not 1e-9 <= self.clip_norm <= 1e9:
            raise ValueError(f"clip_norm must be in 1e-9 … 1e9, got {self.clip_norm}")
        check_not_negative("noise_multiplier", self.noise_multiplier)
        # One value has one JSON text, and so one digest.
        object.__setattr__(self, "clip_norm", float(self.clip_norm))
        object.__setattr__(self, "noise_multiplier", float(self.noise_multiplier))
        if self.mechanism not in get_args(Mechanism):
            raise ValueError(f"mechanism must be 'independent' or 'banded', got {self.mechanism!r}")
        if not 2 <= self.min_clients <= self.buffer:
            raise ValueError(f"min_clients must be in 2 … {self.buffer} (buffer), got {self.min_clients}")
        most = self.min_separation if self.mechanism == "banded" else 1
        if self.bands > most:
            raise ValueError(f"bands of {self.mechanism} noise must be at most {most}, got {self.bands}")
        if not 2 <= self.bits <= 24:
            raise ValueError(f"bits must be in 2 … 24, got {self.bits}")
        if type(self.normalise) is not bool:
            raise ValueError(f"normalise must be true or false, got {self.normalise!r}")
        if self.payload not in get_args(MaskedPayload):
            raise ValueError(f"payload must be 'delta' or 'difference', got {self.payload!r}")
        if self.payload == "difference" and self.noise_multiplier:
            raise ValueError(
                "noise_multiplier must be 0 with payload = 'difference': the noise of all batches would add up"
            )
        self.check_overflow()

    @property
    def largest(self) -> int:
        """The largest absolute value of a quantised number, 2^(bits − 1) − 1."""
        return largest_number(self.bits)

    @property
    def step(self) -> float:
        """The distance of neighbouring quantised values, in the update's unit."""
        return self.clip_norm / self.largest

    @property
    def sensitivity(self) -> float:
        """The largest norm of a quantised update; rounding adds up to step · √d."""
        return self.clip_norm + self.step * math.sqrt(self.length)

    def divisor(self, plan: LocalPlan) -> float:
        """Return the number that an update of this plan is divided by."""
        return normaliser(plan) if self.normalise else 1.0

    def check_overflow(self, row_factor: float = 1.0) -> None:
        """Raise ``ValueError`` if a sum of K updates and its noise could wrap around.

        The condition is ``K · largest_masked + 10 s · largest ≤ 2³⁰``. s is the standard deviation of a batch's noise
        in units of the clip norm, ``noise_multiplier · row_factor · sensitivity / clip_norm``.

        Args:
            row_factor: That of banded noise, ≥ 1: ``sens_{k,b}(C) / √k · ‖(c̃_0, …, c̃_{p−1})‖``.
        """
        noise = self.noise_multiplier * row_factor * self.sensitivity / self.clip_norm
        largest = largest_masked(self.bits, self.payload)
        if not self.buffer * largest + NOISE_TAIL * noise * self.largest <= LARGEST_SUM:
            raise ValueError(
                f"a sum of {self.buffer} updates of {self.bits} bits with noise of {noise:.4g} clip norms could "
                "overflow: take fewer bits"
            )

    def to_bytes(self) -> bytes:
        """Return the canonical JSON: sorted keys, no spaces, bytes in hexadecimal."""
        values = asdict(self) | {name: getattr(self, name).hex() for name in _LENGTHS}
        values["local"] = self.local.model_dump(mode="json")
        return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> "Terms":
        """Return the terms of an untrusted canonical JSON.

        Raises:
            ValueError: The content is malformed, or a value is out of range.
        """
        values = _object(content, "the text 'terms'")
        try:
            values |= {name: bytes.fromhex(values[name]) for name in _LENGTHS}
            values["local"] = AgreedPlan.model_validate(values["local"])
            terms = cls(**values)
        except (TypeError, LookupError, ValidationError):
            raise ValueError("its terms have missing, unknown or malformed values") from None
        if terms.to_bytes() != content:
            raise ValueError("its terms are not in canonical form (JSON with sorted keys and no spaces)")
        return terms

    @property
    def digest(self) -> bytes:
        """SHA-256 of the canonical JSON, 32 bytes."""
        return hashlib.sha256(self.to_bytes()).digest()

    @property
    def fingerprint(self) -> str:
        """128 bits of the digest, which covers the helper's key, for people to compare."""
        return self.digest[:16].hex(" ", 2)


def largest_number(bits: int) -> int:
    """Return the largest absolute value of a quantised number, 2^(bits − 1) − 1."""
    return (1 << (bits - 1)) - 1


def largest_masked(bits: int, payload: MaskedPayload) -> int:
    """Return the largest absolute value of a masked number.

    A difference takes a bit more than an update.
    """
    return largest_number(bits) * (2 if payload == "difference" else 1)


class SignedTerms(NamedTuple):
    """The enrolment file ``terms.json``: terms and the helper's signature of them.

    ``delta`` is the δ for which the helper reports ε, which is not signed; None if the file lacks it.
    """

    terms: Terms
    signature: bytes
    delta: float | None = None

    def to_bytes(self) -> bytes:
        """Return the file's content.

        The terms are in it as a text, so that a program in any language hashes and verifies the same bytes.
        """
        values: dict[str, Any] = {"terms": self.terms.to_bytes().decode(), "signature": self.signature.hex()}
        if self.delta is not None:
            values["delta"] = self.delta
        return json.dumps(values, indent=1).encode() + b"\n"


def sign(terms: Terms, key: Ed25519PrivateKey, delta: float | None = None) -> SignedTerms:
    """Return the terms signed by their helper.

    The Ed25519 signature is over ``offbeat-terms-v1 ‖ canonical JSON``.

    Raises:
        ValueError: The key is not that of ``helper_key``.
    """
    if key.public_key().public_bytes_raw() != terms.helper_key:
        raise ValueError("the signing key does not belong to the helper_key of the terms")
    return SignedTerms(terms, key.sign(_SIGNED + terms.to_bytes()), delta)


def verify(content: bytes) -> SignedTerms:
    """Return the content of an untrusted ``terms.json``, its signature verified.

    The signature is checked with the key in the terms. Whether that key is the helper's, people compare by fingerprint.

    Raises:
        ValueError: The content is malformed, or the signature is not the helper's.
    """
    values = _object(content, "the enrolment file")
    try:
        terms = Terms.from_bytes(values["terms"].encode())
        signature = bytes.fromhex(values["signature"])
        Ed25519PublicKey.from_public_bytes(terms.helper_key).verify(signature, _SIGNED + terms.to_bytes())
    except (LookupError, TypeError, AttributeError):
        raise ValueError("its texts 'terms' and 'signature' are missing or malformed") from None
    except InvalidSignature:
        raise ValueError("its signature does not fit its terms, so somebody has changed the file") from None
    delta = values.get("delta")
    if delta is not None and not (isinstance(delta, float) and 0 < delta < 1):
        raise ValueError(f"its delta must be between 0 and 1, got {delta!r}")
    return SignedTerms(terms, signature, delta)


def _object(content: bytes, name: str) -> dict[str, Any]:
    """Return the JSON object of untrusted bytes."""
    if len(content) > _LARGEST_FILE:
        raise ValueError(f"{name} must have at most {_LARGEST_FILE} bytes, got {len(content)}")
    try:
        values = json.loads(content)
    except (ValueError, RecursionError):
        raise ValueError(f"{name} must be JSON") from None
    if not isinstance(values, dict):
        raise ValueError(f"{name} must be a JSON object")
    return values
