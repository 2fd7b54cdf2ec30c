import re

import pytest
from offbeat_private.masks.chain_head import Head

TERMS = bytes([7] * 32)
HEAD = Head(3, b"h" * 32)


def test_a_signed_message_names_terms_number_and_head():
    assert HEAD.signed_message(TERMS) == b"offbeat-head-v1" + TERMS + b"\0\0\0\0\0\0\0\3" + b"h" * 32


def test_only_the_terms_helper_signs_heads(helper_key, client_key):
    message = b"offbeat-head-v1" + TERMS + b"\0\0\0\0\0\0\0\3" + b"h" * 32
    helper = helper_key.public_key().public_bytes_raw()
    signature = helper_key.sign(message)
    HEAD.check_signature(signature, helper, TERMS)
    for head, signed, terms in [
        (Head(4, b"h" * 32), signature, TERMS),
        (Head(3, b"i" * 32), signature, TERMS),
        (HEAD, signature, bytes(32)),
        (HEAD, client_key.sign(message), TERMS),
        (HEAD, helper_key.sign(message[1:]), TERMS),
        (HEAD, signature[:-1], TERMS),
        (HEAD, b"", TERMS),
    ]:
        with pytest.raises(ValueError, match=re.escape("the head was not signed by the helper of the terms")):
            head.check_signature(signed, helper, terms)
