"""Headers that do not fit the visit's plan."""

from tests.service.conftest import PLAN, body_of
from tests.service.http_client import ONES, kind_of


def test_a_normaliser_is_ten_times_off_the_plans_at_most(shared_server):
    assert PLAN.steps == 2
    peer = shared_server.enrol()
    for steps, normaliser in ((2, 0.19), (2, 20.1), (2, 3e38), (1, 11.0), (0, 1.0), (3, 3.0)):
        answer = peer.put(peer.check_in(), body_of(ONES), steps=steps, normaliser=normaliser)
        assert kind_of(answer, 422) == "wrong-plan"
    for normaliser in (0.0, 0.2, 2.0, 20.0):
        assert peer.send(peer.check_in(), ONES, normaliser=normaliser)["counted"]
