"""The test vectors for other languages: right by the reference, and what the code makes of them."""

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from offbeat_core.model_file import model_digest
from offbeat_private.masks.envelope import parse
from offbeat_private.masks.helper_facts import Head, sign_epoch_key, verify_epoch_key
from offbeat_private.masks.keystream import keystream
from offbeat_private.masks.share import make_share
from offbeat_private.masks.signing_key import public_text
from offbeat_private.signed_terms import Terms, sign, verify

from tests.offbeat_private.masks import reference

VECTORS = json.loads(Path(__file__).with_name("vectors.json").read_text(encoding="utf-8"))
SHARE = {name: bytes.fromhex(value) if isinstance(value, str) else value for name, value in VECTORS["share"].items()}
TERMS = Terms.from_bytes(VECTORS["terms"]["terms"].encode())
CLIENT = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(VECTORS["client_key"]["private_key"]))
HPKE = bytes.fromhex(VECTORS["epoch_key"]["private_key"])
HELPER = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(VECTORS["terms"]["helper_private_key"]))
RECORD = SHARE["info"] + SHARE["head_signature"] + SHARE["ciphertext"] + SHARE["signature"]


@pytest.mark.parametrize("vector", VECTORS["keystream"])
def test_words(vector):
    key, number, length = bytes.fromhex(vector["key"]), int(vector["number"]), vector["length"]
    words = keystream(key, number, length)
    assert words.tolist() == reference.words(key, number, length)
    assert words[:8].tolist() == vector["first_words"]
    assert hashlib.sha256(words.astype("<u4").tobytes()).hexdigest() == vector["sha256"]


def test_terms():
    vector = VECTORS["terms"]
    assert TERMS.digest.hex() == hashlib.sha256(vector["terms"].encode()).hexdigest() == vector["digest"]
    assert HELPER.sign(b"offbeat-terms-v1" + vector["terms"].encode()).hex() == vector["signature"]
    assert sign(TERMS, HELPER).signature.hex() == vector["signature"]
    assert verify(json.dumps({name: vector[name] for name in ("terms", "signature")}).encode()).terms == TERMS


def test_the_digest_of_a_model():
    vector = VECTORS["model"]
    parameters, named = np.array(vector["parameters"], "<f4"), {}
    for name, shape in vector["layout"]:
        named[name], parameters = parameters[: np.prod(shape)].reshape(shape), parameters[np.prod(shape) :]
    text = json.dumps([[name, list(named[name].shape)] for name in sorted(named)]).replace(" ", "")
    content = text.encode() + b"".join(named[name].tobytes() for name in sorted(named))
    assert model_digest(named).hex() == hashlib.sha256(content).hexdigest() == vector["digest"]


def test_keys():
    vector = VECTORS["epoch_key"]
    signed = bytes.fromhex(vector["signed"])
    packed = (
        vector["epoch"].to_bytes(4, "big") + X25519PrivateKey.from_private_bytes(HPKE).public_key().public_bytes_raw()
    )
    assert signed == packed + HELPER.sign(b"offbeat-epoch-key-v1" + TERMS.digest + packed)
    assert signed == sign_epoch_key(verify_epoch_key(signed, TERMS), TERMS, HELPER)
    assert public_text(CLIENT) == VECTORS["client_key"]["text"]


def commitment(masked):
    """Return the commitment to a masked vector with the salt of the vectors."""
    digest = hashlib.sha256(b"".join(word.to_bytes(4, "little") for word in masked)).digest()
    return hashlib.sha256(b"offbeat-vector-v1" + SHARE["salt"] + digest).digest()


def test_the_vector_of_a_share():
    quantised = reference.quantised(
        SHARE["delta"], SHARE["divisor"], TERMS.clip_norm, SHARE["scale"], TERMS.bits, SHARE["rounding_key"]
    )
    assert quantised == SHARE["quantised"]
    masked = reference.masked(quantised, [0] * TERMS.length, SHARE["seed"])
    assert masked == SHARE["masked"]
    assert commitment(masked) == SHARE["vector"]


def test_a_difference():
    vector = VECTORS["difference"]
    differences = replace(TERMS, payload="difference", noise_multiplier=0.0)
    assert differences.to_bytes() == vector["terms"].encode()
    assert HELPER.sign(b"offbeat-terms-v1" + vector["terms"].encode()).hex() == vector["signature"]
    masked = reference.masked(SHARE["quantised"], vector["previous"], SHARE["seed"])
    assert masked == vector["masked"]
    assert commitment(masked).hex() == vector["vector"]


def test_the_record_of_a_share():
    parts = [TERMS.digest, TERMS.run, CLIENT.public_key().public_bytes_raw()]
    parts += [SHARE[name].to_bytes(8, "big") for name in ("visit", "start_version", "version")]
    parts += [SHARE["model"], SHARE["vector"], SHARE["head_number"].to_bytes(8, "big"), SHARE["head"]]
    parts += [VECTORS["epoch_key"]["epoch"].to_bytes(4, "big")]
    assert SHARE["info"] == b"".join(parts)
    head = SHARE["head_number"].to_bytes(8, "big") + SHARE["head"]
    assert SHARE["head_signature"] == HELPER.sign(b"offbeat-head-v1" + TERMS.digest + head)
    assert SHARE["signature"] == CLIENT.sign(b"offbeat-share-v1" + RECORD[:-64])
    assert reference.hpke_open(SHARE["ciphertext"], HPKE, SHARE["info"]) == SHARE["seed"]


def test_the_code_opens_the_record():
    envelope = parse(RECORD)
    envelope.check_signature()
    envelope.check_head(TERMS.helper_key)
    assert envelope.open(X25519PrivateKey.from_private_bytes(HPKE)) == SHARE["seed"]


@pytest.fixture
def made(monkeypatch):
    """Return a function that makes the share of the vectors."""
    drawn = iter([SHARE["rounding_key"], SHARE["seed"], SHARE["salt"]])
    monkeypatch.setattr(os, "urandom", lambda _: next(drawn))
    names = ("divisor", "scale", "visit", "start_version", "version", "model", "head_signature")
    return lambda terms, previous=None: make_share(
        np.array(SHARE["delta"], np.float32),
        terms=terms,
        previous=previous,
        epoch_key=verify_epoch_key(bytes.fromhex(VECTORS["epoch_key"]["signed"]), TERMS),
        head=Head(SHARE["head_number"], SHARE["head"]),
        signing_key=CLIENT,
        **{name: SHARE[name] for name in names},
    )


def test_the_code_makes_the_difference(made):
    vector = VECTORS["difference"]
    share = made(Terms.from_bytes(vector["terms"].encode()), np.array(vector["previous"], np.int32))
    assert share.masked.tolist() == vector["masked"]
    assert share.quantised.tolist() == SHARE["quantised"]
    assert parse(share.record).binding.vector.hex() == vector["vector"]


def test_the_code_makes_the_share(made):
    share = made(TERMS)
    assert (share.masked.tolist(), share.salt) == (SHARE["masked"], SHARE["salt"])
    envelope = parse(share.record)
    assert (envelope.info, envelope.head_signature) == (SHARE["info"], SHARE["head_signature"])
    assert reference.hpke_open(envelope.ciphertext, HPKE, envelope.info) == SHARE["seed"]
