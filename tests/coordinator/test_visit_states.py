"""Every call in every state of a visit, and the table of the documentation."""

from pathlib import Path

import pytest

from offbeat.algorithms import FedBuff
from offbeat.coordinator import RecordedCall
from offbeat.coordinator.algorithm_checks import differing_entries
from offbeat.coordinator.visit_states import STATES, VisitCall, VisitState
from tests.coordinator.conftest import make, receive

PAGE = Path(__file__).parents[2] / "docs/concepts/virtual-time.md"


class World:
    """A coordinator, and client 0 whose visit 0 is in a state; its update would be too stale to count."""

    def __init__(self, state, max_staleness=0):
        self.calls = []
        self.coordinator = make(
            FedBuff(buffer_size=1, concurrency=3), self.calls.append, lease_seconds=10.0, max_staleness=max_staleness
        )
        self.coordinator.present(0.0, 1)
        (other,) = self.coordinator.assign(0.0)
        if state != VisitState.NEW:
            self.coordinator.present(0.0, 0)
            (self.own,) = self.coordinator.assign(0.0)
        receive(self.coordinator, 1.0, other)
        if state == VisitState.LAPSED:
            self.coordinator.drop(1.0, 0, 0)
        elif state == VisitState.HELD:
            self.coordinator.finish(1.0)
        elif state == VisitState.CLOSED:
            receive(self.coordinator, 1.0, self.own)
        self.coordinator.present(1.0, 0)
        self.calls.clear()

    @property
    def state(self):
        return self.coordinator.visits.state(0)

    def make(self, call):
        coordinator = self.coordinator
        match call:
            case VisitCall.ASSIGN:
                coordinator.replay(RecordedCall("assign", {"now": 2.0, "clients": [0]}))
            case VisitCall.RENEW:
                coordinator.renew(2.0, 0, 0)
            case VisitCall.OFFER:
                coordinator.offer(2.0, 0, 0)
            case VisitCall.RECEIVE:
                receive(coordinator, 2.0, self.own if hasattr(self, "own") else Stranger)
            case VisitCall.DROP:
                coordinator.drop(2.0, 0, 0)
            case VisitCall.LAPSE:
                coordinator.lapse(20.0)
            case VisitCall.FINISH:
                coordinator.finish(2.0)
            case VisitCall.FREE_SLOT:
                coordinator.free_slot(2.0, 0)


class Stranger:
    """A visit that client 0 was never given."""

    client = visit = 0


@pytest.mark.parametrize("call", VisitCall, ids=lambda call: call.name)
@pytest.mark.parametrize("state", VisitState, ids=lambda state: state.name)
def test_every_call_in_every_state(state, call):
    world = World(state)
    assert world.state is state
    before = world.coordinator.state_dict()
    expected = STATES[state].get(call)
    if expected is None:
        with pytest.raises(ValueError, match=r"assign does not go with a visit that is OPEN|was never given visit 0"):
            world.make(call)
        expected = state
    else:
        world.make(call)
    assert world.state is expected
    statistics = world.coordinator.statistics
    at_work = statistics.assigned - statistics.counted - statistics.unused - statistics.lost
    assert at_work == (expected is VisitState.OPEN)
    if expected is state and (state, call) != (VisitState.OPEN, VisitCall.RENEW):
        assert world.calls == []
        assert list(differing_entries(before, world.coordinator.state_dict())) == []
    else:
        assert len(world.calls) == 1


@pytest.mark.parametrize("state", [VisitState.OPEN, VisitState.LAPSED], ids=lambda state: state.name)
def test_an_offer_of_an_update_that_counts_changes_nothing(state):
    world = World(state, max_staleness=None)
    world.make(VisitCall.OFFER)
    assert (world.state, world.calls) == (state, [])


def test_assign_drops_a_visit_that_has_a_slot_first():
    world = World(VisitState.OPEN)
    world.coordinator.assign(2.0)
    assert [call.name for call in world.calls] == ["drop", "assign"]
    assert world.state is VisitState.OPEN
    assert world.coordinator.visits.latest(0) == 1


def test_the_page_shows_the_table():
    header = ["", *(f"`{call.name.lower()}`" for call in VisitCall)]
    rows = [header, ["---"] * len(header)]
    for state, calls in STATES.items():
        cells = [calls.get(call) for call in VisitCall]
        words = ["error" if cell is None else "·" if cell is state else cell.name.lower() for cell in cells]
        rows.append([f"**{state.name.lower()}**", *words])
    table = "\n".join(f"| {' | '.join(row)} |".replace("|  |", "| |") for row in rows)
    assert table in PAGE.read_text(), f"the table of {PAGE.name} must be\n{table}"
