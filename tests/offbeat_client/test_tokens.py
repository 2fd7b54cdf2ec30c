import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbeat_client.tokens import looks_like, new_token, token_hash

RANDOM = "A-_9" * 10 + "abc"


def test_a_token_is_256_bits_after_its_prefix() -> None:
    token = new_token("obc_")
    assert token.startswith("obc_")
    assert len(base64.urlsafe_b64decode(token.removeprefix("obc_") + "=")) == 32
    assert looks_like(token, "obc_")


def test_no_two_tokens_are_the_same() -> None:
    assert len({new_token("obc_") for _ in range(1000)}) == 1000


def test_the_hash_is_sha256_of_all_of_it() -> None:
    token = "obc_" + RANDOM
    assert token_hash(token) == hashlib.sha256(token.encode()).hexdigest()


@pytest.mark.parametrize(
    "token",
    [
        "",
        "obc_",
        "obe_" + RANDOM,
        RANDOM,
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


@given(st.text())
def test_every_text_that_looks_like_a_token_has_a_hash(text: str) -> None:
    if looks_like("obc_" + text, "obc_"):
        token_hash("obc_" + text)
    assert looks_like("obc_" + RANDOM, "obc_")
