import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbeat.algorithms import LocalPlan
from offbeat.coordinator.visit_plans import VisitPlans
from offbeat.coordinator.visit_states import VisitCall, VisitState
from offbeat.coordinator.visits import Assignment, Receipt, VisitTable
from offbeat.tensor_file import read_checkpoint, write_checkpoint

LOCAL = LocalPlan(steps=2, batch_size=1, lr=0.1)
OTHER = LocalPlan(steps=3, batch_size=1, lr=(0.1, 0.2, 0.3))


def test_a_client_that_never_came_has_nothing():
    table = VisitTable(3)
    assert table.latest(2) == -1
    assert table.state(2) is VisitState.NEW
    assert table.assignment(2) is None
    assert table.receipt(2, 0) is None
    assert list(table.open_assignments()) == []


def test_visits_of_a_client_are_numbered_and_know_the_last_that_counted():
    table = VisitTable(3)
    assert table.open(1, 4, LOCAL, 9.0) == Assignment(1, 0, 4, LOCAL, 9.0, None)
    table.close(1, Receipt(True, 2, False))
    assert table.open(1, 6, OTHER, 9.5) == Assignment(1, 1, 6, OTHER, 9.5, 4)
    table.close(1, Receipt(False, 1, False))
    assert table.open(1, 8, LOCAL, 9.9) == Assignment(1, 2, 8, LOCAL, 9.9, 4)
    assert (table.latest(1), table.version(1), table.state(1)) == (2, 8, VisitState.OPEN)
    table.lapse(1, VisitCall.LAPSE)
    assert table.state(1) is VisitState.LAPSED
    assert list(table.open_assignments()) == [table.assignment(1)]


RECEIPTS = st.builds(Receipt, st.booleans(), st.integers(0, 2**40), st.booleans())


@given(st.lists(RECEIPTS, min_size=1), st.booleans())
def test_receipts_are_known_of_the_latest_visit_and_of_the_last_that_counted(receipts, one_more):
    table = VisitTable(1)
    for receipt in receipts:
        table.open(0, 0, LOCAL, 1.0)
        assert table.receipt(0, table.latest(0)) is None
        table.close(0, receipt)
    if one_more:
        table.open(0, 0, LOCAL, 1.0)
    counted = [number for number, receipt in enumerate(receipts) if receipt.counted]
    known = {*counted[-1:], *([] if one_more else [len(receipts) - 1])}
    for number, receipt in enumerate(receipts):
        assert table.receipt(0, number) == (receipt if number in known else None)


@pytest.mark.parametrize("trip", [lambda state, _: state, None])
def test_a_table_goes_on_from_its_state(trip, tmp_path):
    table, restored = VisitTable(5), VisitTable(5)
    table.open(3, 6, LOCAL, 3.0)
    table.open(1, 6, LOCAL, 3.0)
    assert table.finish(8) == 2
    assert table.receipt(3, 0) == Receipt(False, 2, False)
    for client, plan in ((4, LOCAL), (1, OTHER), (2, LOCAL), (0, LOCAL)):
        table.open(client, client, plan, 3.0)
    table.close(4, Receipt(True, 5, True))
    table.close(2, Receipt(False, 1, False))
    table.lapse(1, VisitCall.LAPSE)
    table.open(4, 7, LOCAL, 8.0)
    plans = VisitPlans(LOCAL, None)
    state = table.state_dict(plans)
    if trip is None:
        write_checkpoint(tmp_path / "state", state)
        state = read_checkpoint(tmp_path / "state")
    restored.open(3, 1, LOCAL, 1.0)  # which is to be forgotten
    restored.load_state_dict(state, plans)
    assert list(restored.open_assignments()) == list(table.open_assignments())
    assert restored.held_slots == table.held_slots == {3: None}  # the other client has another visit
    assert [restored.state(client) for client in range(3)] == [table.state(client) for client in range(3)]
    for client in range(5):
        assert restored.latest(client) == table.latest(client)
        assert restored.version(client) == table.version(client)
        assert restored.state(client) is table.state(client)
        for visit in range(3):
            assert restored.receipt(client, visit) == table.receipt(client, visit)
    restored.lapse(4, VisitCall.DROP)
    assert restored.open(4, 9, LOCAL, 1.0).since == 4
    assert json.dumps(state["open"])
