import json

import pytest

from offbeat.algorithms import LocalPlan
from offbeat.algorithms.components import Compression
from offbeat.coordinator.calls import plan_from_plain, plan_to_plain

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
def test_a_plan_survives_a_trip_through_json(plan):
    restored = plan_from_plain(json.loads(json.dumps(plan_to_plain(plan, LOCAL))), LOCAL)
    assert restored == plan
    # As a key, too, of which LocalPlan and Compression are used.
    assert hash(restored) == hash(plan)


def test_the_runs_own_plan_is_not_written_down():
    assert plan_to_plain(LocalPlan(steps=2, batch_size=1, lr=0.1), LOCAL) is None
    assert plan_from_plain(None, LOCAL) is LOCAL
