import math

import pytest

from offbeat.simulation.totals import Evaluation, Stop, Totals, VisitEnded


@pytest.mark.parametrize(
    ("stop", "reached"),
    [
        (Stop(), []),
        (Stop(virtual_seconds=1.0), []),  # which the event loop looks at
        (Stop(versions=3), [(3, 0), (4, 0)]),
        (Stop(updates=2), [(0, 2), (0, 3)]),
        (Stop(versions=3, updates=2), [(3, 0), (0, 2)]),
    ],
)
def test_a_run_ends_at_whichever_limit_comes_first(stop, reached):
    assert all(stop.is_reached(*numbers) for numbers in reached)
    assert not stop.is_reached(2, 1)


def test_totals_add_up_and_survive_a_restart():
    totals, restored = Totals(bytes_down=100), Totals()
    for outcome, bytes_up in (("counted", 8), ("lost", 3), ("counted", 8), ("unused", 0)):
        totals.add(VisitEnded(0, 0, 0, None, 0.0, 1.0, 25, bytes_up, outcome))
    restored.load_state_dict(totals.state_dict())
    for each in (totals, restored):
        expected = Evaluation(5.0, 7, 2, 1, 1, 100, 19, 0.5, math.inf, {"accuracy": 0.5})
        assert each.evaluation(5.0, 7, 0.5, math.inf, {"accuracy": 0.5}) == expected
    restored.add(VisitEnded(0, 0, 0, None, 0.0, 1.0, 25, 8, "lost"))
    assert totals.outcomes == {"counted": 2, "unused": 1, "lost": 1}
