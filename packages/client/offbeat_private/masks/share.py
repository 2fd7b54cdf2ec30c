"""A client's share of a batch: its update clipped, quantised, masked and sealed."""

import hashlib
import os
from typing import NamedTuple

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray
from offbeat_core.number_checks import check_positive
from offbeat_private.limits import check_scale
from offbeat_private.masks.envelope import SEED_BYTES, Binding, seal
from offbeat_private.masks.fixed_point import whole_numbers
from offbeat_private.masks.helper_facts import EpochKey, Head
from offbeat_private.masks.keystream import KEY_BYTES, keystream_chunks
from offbeat_private.signed_terms import Terms

SALT_BYTES = 32

_COMMITTED = b"offbeat-vector-v1"


class Share(NamedTuple):
    """A masked vector, its share record, and what opens the record's commitment.

    Where differences are sent, ``quantised`` is the update that the next difference refers to.
    """

    masked: NDArray[np.uint32]  # (d,)
    record: bytes  # 420 bytes
    digest: bytes  # of the masked vector
    salt: bytes  # for the server alone
    quantised: NDArray[np.int32] | None = None  # (d,)


def make_share(
    delta: NDArray[np.float32],
    *,
    divisor: float,
    scale: float,
    terms: Terms,
    visit: int,
    start_version: int,
    version: int,
    model: bytes,
    head: Head,
    head_signature: bytes,
    epoch_key: EpochKey,
    signing_key: Ed25519PrivateKey,
    previous: NDArray[np.int32] | None = None,
) -> Share:
    """Return the share of an update, which the server gets in place of the delta.

    ``delta / divisor`` is clipped to the terms' norm, multiplied by ``scale``, quantised, and masked with a fresh seed,
    which is sealed for the helper. A delta that is not finite counts as zeros. Where the terms are for differences,
    ``previous`` is subtracted before the mask is added, so the sum of a client's differences is its last update.

    Args:
        delta: Float32 ``(d,)``; it is not changed.
        divisor: FedNova's a from the plan, > 0; 1 for other algorithms.
        scale: The weight by staleness at ``version``, 1/8 … 1.
        terms: What the client agreed to.
        visit: The visit's number; with those below, see ``Binding``.
        start_version: The version that the visit started from.
        version: The server's open version, at least the one before.
        model: SHA-256 of the model.
        head: The newest head of the helper's chain, verified.
        head_signature: The helper's signature of it.
        epoch_key: The helper's present key, verified.
        signing_key: The client's key.
        previous: The client's last counted quantised update, int32 ``(d,)``; None if there is none.

    Raises:
        ValueError: A value is out of range; nothing may be sent then.
    """
    if delta.dtype != np.float32 or delta.shape != (terms.length,):
        raise ValueError(f"the delta must be float32 {(terms.length,)}, got {delta.dtype} {delta.shape}")
    check_positive("divisor", divisor)
    check_scale(scale)
    if version < start_version:
        raise ValueError(f"version {version} of the share is older than start_version {start_version}")
    quantised = whole_numbers(
        delta,
        divisor=divisor,
        scale=scale,
        clip_norm=terms.clip_norm,
        largest=terms.largest,
        key=os.urandom(KEY_BYTES),
    )
    seed = os.urandom(SEED_BYTES)
    if terms.payload == "difference":
        remembered, quantised = quantised, difference(quantised, previous)
    else:
        remembered = None
    masked = mask(quantised, seed)
    digest, salt = vector_digest(masked), os.urandom(SALT_BYTES)
    binding = Binding(
        terms=terms.digest,
        run=terms.run,
        client=signing_key.public_key().public_bytes_raw(),
        visit=visit,
        start_version=start_version,
        version=version,
        model=model,
        vector=commitment(digest, salt),
        head_number=head.number,
        head=head.digest,
        epoch=epoch_key.epoch,
    )
    record = seal(seed, epoch_key.public_key, binding, head_signature, signing_key)
    return Share(masked, record, digest, salt, remembered)


def difference(quantised: NDArray[np.int32], previous: NDArray[np.int32] | None) -> NDArray[np.int32]:
    """Return the difference to a client's last counted quantised update, a new array."""
    return quantised.copy() if previous is None else quantised - previous


def mask(quantised: NDArray[np.int32], seed: bytes) -> NDArray[np.uint32]:
    """Add a seed's words modulo 2³², in place; return the same memory as uint32."""
    masked = quantised.view(np.uint32)
    for part, words in keystream_chunks(seed, 0, len(masked)):
        masked[part] += words
    return masked


def commitment(digest: bytes, salt: bytes) -> bytes:
    """Return the commitment of a record to its masked vector, 32 bytes.

    The helper knows the mask. Without the salt, which only client and server know, it could confirm a guess of the
    update.
    """
    return hashlib.sha256(_COMMITTED + salt + digest).digest()


def vector_digest(masked: NDArray[np.uint32]) -> bytes:
    """Return the SHA-256 of a masked vector as little-endian words, 32 bytes."""
    return hashlib.sha256(masked.astype("<u4", copy=False).data).digest()
