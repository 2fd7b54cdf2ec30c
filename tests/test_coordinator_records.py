import json
import math

import pytest

from offbeat.algorithms import LocalPlan
from offbeat.algorithms.base import Compression
from offbeat.coordinator_records import Assignment, LatestVisit, Receipt, VisitState

LOCAL = LocalPlan(steps=2, batch_size=1, lr=0.1)


TOP_K = Compression("top_k", (("share", 0.1),))
RANDOM_K = Compression("random_k", (("share", 0.5), ("scaled", False)))
PLANS = [
    LOCAL,
    LocalPlan(steps=2, batch_size=1, lr=(0.1, 0.2)),
    LocalPlan(3, 4, 0.5, mu=0.1),
    LocalPlan(3, 4, 0.5, compression=TOP_K),
    LocalPlan(3, 4, 0.5, compression=RANDOM_K, error_feedback=True),
    LocalPlan(3, 4, (0.5, 0.25, 0.125), compression=Compression("sign")),
]


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("receipt", [None, Receipt(counted=True, staleness=3, new_version=False)])
def test_a_visit_survives_a_trip_through_json(plan, receipt):
    counted = (4, 7, receipt) if receipt else None
    visit = LatestVisit(Assignment(1, 5, 9, plan, math.inf, 7), VisitState.LAPSED, receipt, counted)
    restored = LatestVisit.from_plain(json.loads(json.dumps(visit.to_plain(LOCAL))), LOCAL)
    assert restored == visit
    # As a key, too, of which LocalPlan and Compression are used.
    assert hash(restored.assignment.plan) == hash(plan)
