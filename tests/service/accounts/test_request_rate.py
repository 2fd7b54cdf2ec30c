import pytest

from offbeat.service.accounts.request_rate import RequestRate
from offbeat.service.refusal import Refusal
from tests.service.conftest import running
from tests.service.http_client import check_progress, kind_of


def test_a_bucket_empties_and_fills_again_for_each_client():
    now = 100.0
    rate = RequestRate(0.5, 2, clock=lambda: now)
    rate.take(0)
    rate.take(0)
    with pytest.raises(Refusal) as caught:
        rate.take(0)
    assert (caught.value.kind, caught.value.headers["Retry-After"]) == ("too-many-requests", "1")
    rate.take(1)
    now += 1.9  # not a whole token
    with pytest.raises(Refusal):
        rate.take(0)
    now += 0.1
    rate.take(0)
    with pytest.raises(Refusal):
        rate.take(0)
    now += 1000.0  # no more than the burst
    rate.take(0)
    rate.take(0)
    with pytest.raises(Refusal):
        rate.take(0)


def test_a_client_that_asks_too_often_is_refused_and_no_other(tmp_path):
    with running(tmp_path / "server", requests_a_second=0.001, burst=3) as server:
        hostile, honest = server.enrol(), server.enrol()
        for _ in range(3):
            hostile.check_in()
        answer = hostile.http.post("/v1/checkin", json={})
        assert kind_of(answer, 429) == "too-many-requests"
        assert answer.headers["retry-after"] == "1"
        check_progress(server, [honest])
