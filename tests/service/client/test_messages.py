import json

import pytest

from offbeat.algorithms.components import Compression, LocalPlan
from offbeat.errors import OffbeatError
from offbeat.service.client.messages import read_check_in, read_upload_state

VISIT = {
    "number": 4,
    "version": 12,
    "since": 9,
    "payload": "delta",
    "length": 7850,
    "seed": 8230191,
    "plan": {"steps": 2, "batch_size": 32, "lr": [0.1, 0.05], "compression": None, "error_feedback": False},
    "lease_seconds": 600.0,
    "urgent": False,
}
TOP_K = {"name": "top_k", "parameters": {"share": 0.01}}


def answer(**changes):
    """As it comes over the line."""
    whole = {"visit": {**VISIT, **changes}, "retry_after_seconds": None, "finished": False}
    return json.loads(json.dumps(whole))


def test_a_visit_is_read():
    check_in = read_check_in(answer(), client=17)
    visit = check_in.visit
    assert (check_in.finished, check_in.retry_after_seconds) == (False, 0.0)
    assert (visit.client, visit.number, visit.version, visit.since, visit.length) == (17, 4, 12, 9, 7850)
    assert (visit.payload, visit.seed, visit.lease_seconds) == ("delta", 8230191, 600.0)
    assert visit.plan == LocalPlan(steps=2, batch_size=32, lr=(0.1, 0.05))
    assert not visit.urgent.is_set()


def test_an_urgent_visit_with_compression_is_read():
    plan = {"steps": 1, "batch_size": 1, "lr": 0.1, "compression": TOP_K, "error_feedback": True}
    visit = read_check_in(answer(plan=plan, urgent=True, since=None, lease_seconds=None), client=0).visit
    assert visit.urgent.is_set()
    assert visit.plan.compression == Compression("top_k", (("share", 0.01),))
    assert (visit.since, visit.lease_seconds) == (None, None)


def test_what_a_visit_needs_is_read():
    plain = read_check_in(answer(), client=0).visit  # a server of protocol 1.1 says nothing
    assert (plain.corrects_gradients, plain.needs_loss, plain.offset) == (False, False, None)
    visit = read_check_in(answer(corrects_gradients=True, needs_loss=False), client=0).visit
    assert (visit.corrects_gradients, visit.needs_loss) == (True, False)
    assert read_check_in(answer(corrects_gradients=False, needs_loss=True), client=0).visit.needs_loss


def test_there_may_be_nothing():
    check_in = read_check_in({"visit": None, "retry_after_seconds": 5.0, "finished": True}, client=0)
    assert (check_in.visit, check_in.retry_after_seconds, check_in.finished) == (None, 5.0, True)


@pytest.mark.parametrize(
    "changes",
    [
        {"plan": {}},
        {"plan": None},
        {"plan": {**VISIT["plan"], "unheard_of": 1}},
        {"plan": {**VISIT["plan"], "compression": {"name": "unheard_of", "parameters": {}}}},
        {"plan": {**VISIT["plan"], "compression": {"name": "top_k", "parameters": {"unheard_of": 1}}}},
        {"plan": {**VISIT["plan"], "lr": -1}},
        {"payload": "unheard of"},
        {"payload": "params", "plan": {**VISIT["plan"], "compression": TOP_K}},
        {"number": None},
        {"version": "x"},
    ],
)
def test_what_is_not_understood_is_refused_before_any_training(changes):
    with pytest.raises(OffbeatError, match="answer to a check-in is not understood") as caught:
        read_check_in(answer(**changes), client=0)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("whole", [{}, {"visit": 3}, {"visit": []}])
def test_other_answers_are_refused(whole):
    with pytest.raises(OffbeatError, match="not understood"):
        read_check_in(whole, client=0)


def test_an_upload_is_under_way_or_has_a_receipt():
    state = read_upload_state({"wanted": True, "offset": 30, "receipt": None}, 2)
    assert (state.wanted, state.offset, state.counted) == (True, 30, None)
    assert read_upload_state({"offset": 40}, 2).offset == 40
    assert read_upload_state({"receipt": {"counted": False}}, 2).counted is False
    with pytest.raises(OffbeatError, match="not understood"):
        read_upload_state({"receipt": {}}, 2)
