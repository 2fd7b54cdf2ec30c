"""The leader's answers: refusals are the same on both sides."""

import pytest

from offbeat.service.internal.answers import Refused
from offbeat.service.refusal import KINDS, Refusal


@pytest.mark.parametrize("kind", KINDS)
def test_refusals_are_the_same_on_both_sides(kind: str) -> None:
    refusal = Refusal(kind, "do this", {"Retry-After": "5"})
    found = Refused.model_validate_json(Refused.of(refusal).model_dump_json()).refusal()
    assert (found.kind, found.detail, found.headers, found.status) == (kind, "do this", refusal.headers, refusal.status)
    assert len(Refused.of(Refusal(kind, "x" * 10_000)).detail) == 8192
