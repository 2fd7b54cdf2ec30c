"""Heads of the helper's chain of answers, which reach clients through the server."""

from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

HEAD_SIGNATURE_BYTES = 64
"""Length of a head's signature."""

_SIGNED = b"offbeat-head-v1"


class Head(NamedTuple):
    """The head of a chain after batch ``number``, 0 before the first."""

    number: int
    digest: bytes  # 32

    def signed_message(self, terms_digest: bytes) -> bytes:
        """Return what the helper signs: ``offbeat-head-v1 ‖ terms digest ‖ n ‖ head``."""
        return _SIGNED + terms_digest + self.number.to_bytes(8, "big") + self.digest

    def check_signature(self, signature: bytes, helper_key: bytes, terms_digest: bytes) -> None:
        """Raise ``ValueError`` unless the helper of the terms signed this head."""
        try:
            Ed25519PublicKey.from_public_bytes(helper_key).verify(signature, self.signed_message(terms_digest))
        except InvalidSignature:
            raise ValueError("the head was not signed by the helper of the terms") from None
