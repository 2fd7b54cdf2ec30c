from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from offbeat_private.agreed_plan import AgreedPlan
from offbeat_private.signed_terms import Terms


@pytest.fixture(scope="session")
def helper_key() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(b"h" * 32)


@pytest.fixture(scope="session")
def client_key() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(b"c" * 32)


@pytest.fixture(scope="session")
def hpke_key() -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(b"x" * 32)


@pytest.fixture(scope="session")
def make_terms(helper_key: Ed25519PrivateKey) -> Callable[..., Terms]:
    """Return a function that makes terms with some values changed."""
    values: dict[str, Any] = {
        "run": b"r" * 16,
        "helper_key": helper_key.public_key().public_bytes_raw(),
        "length": 1000,
        "buffer": 10,
        "min_clients": 5,
        "clip_norm": 1.0,
        "noise_multiplier": 3.77,
        "mechanism": "banded",
        "max_participations": 10,
        "min_separation": 50,
        "bands": 50,
        "bits": 20,
        "local": AgreedPlan(steps=10, batch_size=32, lr=0.1),
    }
    return lambda **changed: Terms(**values | changed)
