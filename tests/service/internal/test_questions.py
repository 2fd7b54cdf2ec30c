"""The questions: what they weigh, and what the log must not show of them."""

from offbeat.service.internal.questions import LARGEST_FRONT_WEIGHT, Forward, weight
from tests.service.internal.ends import LEASE


def test_a_questions_weight_is_about_its_memory_at_the_leader() -> None:
    forward = Forward(method="GET", path="/", headers=(), peer="", body=bytes(1000))
    assert weight(LEASE) == 2**12
    assert weight(forward) == 2**21 + 1000  # the largest answer, and the body
    assert LARGEST_FRONT_WEIGHT // weight(LEASE) > 10_000  # clients that wait


def test_tokens_are_not_shown() -> None:
    forward = Forward(method="GET", path="/", headers=(("Authorization", "Bearer s3cret"),), peer="", body=b"s3cret")
    assert "s3cret" not in repr(forward)
