"""A helper as a client sees it through the server: signed facts; and what it makes of a share."""

import base64
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from offbeat_private.agreed_plan import AgreedPlan
from offbeat_private.masks.envelope import Binding, Envelope, parse
from offbeat_private.masks.keystream import keystream
from offbeat_private.masks.signing_key import signing_key
from offbeat_private.signed_terms import Terms, sign

HELPER_KEY = Ed25519PrivateKey.from_private_bytes(b"h" * 32)
TERMS = Terms(
    run=b"r" * 16, helper_key=HELPER_KEY.public_key().public_bytes_raw(), length=6, buffer=4, min_clients=2,
    clip_norm=100.0, noise_multiplier=0.0, mechanism="independent", max_participations=9, min_separation=1, bands=1,
    bits=20, local=AgreedPlan(steps=3, batch_size=2, lr=0.1),
)  # fmt: skip
PRIVACY = {"terms": TERMS.digest.hex()}


class Helper:
    """A helper with its present epoch and head; set them to let time pass."""

    def __init__(self, key: Ed25519PrivateKey = HELPER_KEY, terms: Terms = TERMS) -> None:
        self.epoch = self.head_number = 0
        self.chain = b"chain"
        self.version = 14
        self.scale: float = 1.0
        self._key, self._terms = key, terms

    def facts(self, _visit: int = 0) -> dict[str, Any]:
        """Return the facts as a server passes them on."""
        public = self._hpke(self.epoch).public_key().public_bytes_raw()
        digest = hashlib.sha256(self.chain + bytes([self.head_number])).digest()
        packed = self.epoch.to_bytes(4, "big") + public
        head = self.head_number.to_bytes(8, "big") + digest
        signed = {"epoch": b"offbeat-epoch-key-v1" + self._terms.digest + packed}
        signed["head"] = b"offbeat-head-v1" + self._terms.digest + head
        signatures = {name: self._key.sign(message).hex() for name, message in signed.items()}
        return {
            "version": self.version,
            "scale": self.scale,
            "epoch": {"number": self.epoch, "public_key": public.hex(), "signature": signatures["epoch"]},
            "head": {"number": self.head_number, "digest": digest.hex(), "signature": signatures["head"]},
        }

    def open(self, announced: dict[str, Any], body: bytes) -> tuple[Binding, list[int]]:
        """Return a share's binding and its quantised vector, everything checked."""
        envelope = self.envelope(announced)
        envelope.check_signature()
        envelope.check_head(self._terms.helper_key)
        assert announced["bytes"] == len(body) == 4 * self._terms.length
        digest = hashlib.sha256(body).digest()
        salted = b"offbeat-vector-v1" + bytes.fromhex(announced["salt"]) + digest
        assert (envelope.binding.vector, announced["sha256"]) == (hashlib.sha256(salted).digest(), digest.hex())
        seed = envelope.open(self._hpke(envelope.binding.epoch))
        masked = np.frombuffer(body, "<u4").astype(np.uint32)
        return envelope.binding, (masked - keystream(seed, 0, self._terms.length)).view(np.int32).tolist()

    @staticmethod
    def envelope(announced: dict[str, Any]) -> Envelope:
        """Return the record in an announcement."""
        return parse(base64.b64decode(announced["share"], validate=True))

    @staticmethod
    def _hpke(epoch: int) -> X25519PrivateKey:
        return X25519PrivateKey.from_private_bytes(bytes([100 + epoch]) * 32)


def private_folder(path: Path, terms: Terms = TERMS, key: Ed25519PrivateKey = HELPER_KEY) -> Path:
    """Return a new client's folder with its key, and ``terms.json`` beside the folder."""
    path.mkdir(mode=0o700)
    signing_key(path / "signing-key")
    path.with_name("terms.json").write_bytes(sign(terms, key).to_bytes())
    return path
