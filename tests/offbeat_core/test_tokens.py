import base64
import hashlib

import pytest
from offbeat_core.tokens import looks_like, new_token, token_hash

RANDOM = "A-_9" * 10 + "abc"


def test_a_token_is_256_bits_after_its_prefix() -> None:
    token = new_token("obc_")
    assert token.startswith("obc_")
    assert len(base64.urlsafe_b64decode(token.removeprefix("obc_") + "=")) == 32
    assert looks_like(token, "obc_")
    assert new_token("obc_") != token


def test_the_hash_is_sha256_of_all_of_it() -> None:
    token = "obc_" + RANDOM
    assert token_hash(token) == hashlib.sha256(token.encode()).hexdigest()


@pytest.mark.parametrize(
    "token",
    [
        "obc_",
        "obe_" + RANDOM,
        "obc_" + RANDOM[:-1],
        "obc_" + RANDOM + "a",
        "obc_" + RANDOM + "\n",
        "obc_" + RANDOM[:-1] + "=",
        "obc_" + RANDOM[:-1] + "é",
        "obc_" + RANDOM[:-1] + "\ud800",
        " obc_" + RANDOM,
        "obc_" + "a" * 10**6,
    ],
)
def test_other_texts_do_not_look_like_one(token: str) -> None:
    assert not looks_like(token, "obc_")
