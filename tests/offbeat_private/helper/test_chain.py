from hashlib import sha256

from offbeat_private.helper.chain import batch_digest, first_head, next_head
from offbeat_private.masks.chain_head import Head

RUN = bytes(range(16))


def test_a_batch_digest_is_over_run_number_and_sorted_records():
    expected = sha256(b"offbeat-batch-v1" + RUN + b"\0\0\0\0\0\0\1\2" + b"aabb").digest()
    assert batch_digest(RUN, 258, [b"bb", b"aa"]) == batch_digest(RUN, 258, [b"aa", b"bb"]) == expected
    assert len({expected, batch_digest(bytes(16), 258, [b"aa", b"bb"]), batch_digest(RUN, 1, [b"aa", b"bb"])}) == 3


def test_heads_chain_batches_and_answers():
    first = first_head(bytes(32))
    assert first == Head(0, sha256(b"offbeat-chain-v1" + bytes(32)).digest())
    second = next_head(first, b"b" * 32, b"a" * 32)
    content = b"offbeat-chain-v1" + b"\0\0\0\0\0\0\0\1" + first.digest + b"b" * 32 + b"a" * 32
    assert second == Head(1, sha256(content).digest())
