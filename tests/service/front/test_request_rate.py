import pytest

from offbeat.service.front import request_rate
from offbeat.service.front.request_rate import RequestRate
from offbeat.service.refusal import Refusal


def test_a_bucket_empties_and_fills_again_for_each_client():
    now = 100.0
    rate = RequestRate(0.5, 2, clock=lambda: now)
    rate.take("a")
    rate.take("a")
    with pytest.raises(Refusal) as caught:
        rate.take("a")
    assert (caught.value.kind, caught.value.headers["Retry-After"]) == ("too-many-requests", "1")
    rate.take("b")
    now += 1.9  # not a whole token
    with pytest.raises(Refusal):
        rate.take("a")
    now += 0.1
    rate.take("a")
    with pytest.raises(Refusal):
        rate.take("a")
    now += 1000.0  # no more than the burst
    rate.take("a")
    rate.take("a")
    with pytest.raises(Refusal):
        rate.take("a")


def test_of_many_clients_the_silent_ones_are_forgotten(monkeypatch):
    monkeypatch.setattr(request_rate, "_MOST_BUCKETS", 2)
    rate = RequestRate(1e-3, 1, clock=lambda: 0.0)
    rate.take("a")
    rate.take("b")
    for refused in "ab":  # "a" has asked before "b"
        with pytest.raises(Refusal):
            rate.take(refused)
    rate.take("c")
    with pytest.raises(Refusal):
        rate.take("b")
    rate.take("a")
