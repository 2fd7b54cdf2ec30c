from dataclasses import replace

from offbeat_client.visit import Visit
from offbeat_core.local_plan import LocalPlan

VISIT = Visit(0, 1, 2, None, "delta", 6, 5, LocalPlan(1, 1, 0.1))


def test_a_copy_shares_the_urgency_of_its_visit():
    other, copy = Visit(0, 1, 2, None, "delta", 6, 5, LocalPlan(1, 1, 0.1)), replace(VISIT, needs_loss=True)
    VISIT.urgent.set()
    assert copy.urgent.is_set()
    assert not other.urgent.is_set()
