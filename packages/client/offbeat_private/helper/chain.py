"""The signed hash chain of a run's answers.

``head_0 = SHA-256(offbeat-chain-v1 ‖ terms digest)`` and ``head_n = SHA-256(offbeat-chain-v1 ‖ n ‖ head_{n−1} ‖ batch
digest ‖ SHA-256 of the answer)``, n as 8 bytes, big-endian. A batch's digest is ``SHA-256(offbeat-batch-v1 ‖ run ‖ n ‖
sorted records)``, so it does not depend on their order.
"""

import hashlib
from collections.abc import Iterable

from offbeat_private.masks.chain_head import Head

HEAD_HEADER = "Offbeat-Head"
"""The header of an answer with its head: ``number:hash``."""

SIGNATURE_HEADER = "Offbeat-Head-Signature"
"""The header with the head's signature, in hexadecimal digits."""

_BATCH = b"offbeat-batch-v1"
_CHAIN = b"offbeat-chain-v1"


def batch_digest(run: bytes, number: int, records: Iterable[bytes]) -> bytes:
    """Return the digest of a batch; all records have the same size."""
    return hashlib.sha256(b"".join((_BATCH, run, _number(number), *sorted(records)))).digest()


def first_head(terms_digest: bytes) -> Head:
    """Return the head before the first batch of a run."""
    return Head(0, hashlib.sha256(_CHAIN + terms_digest).digest())


def next_head(head: Head, batch: bytes, answer: bytes) -> Head:
    """Return the head after the next batch; ``answer`` is the SHA-256 of its answer."""
    number = head.number + 1
    return Head(number, hashlib.sha256(b"".join((_CHAIN, _number(number), head.digest, batch, answer))).digest())


def _number(number: int) -> bytes:
    return number.to_bytes(8, "big")
