"""Runs that would never end."""

import math
from itertools import islice

import numpy as np
import pytest
from offbeat_core.errors import OffbeatError

from offbeat.algorithms import FedAvg, FedLuck
from offbeat.population.availability import Alternating
from offbeat.simulation.records import Stop
from offbeat.simulation.stall_guard import CLOCK_ADVICE
from tests.simulation.conftest import ended, resume, run


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr("offbeat.simulation.stall_guard._MAX_IN_VAIN", 20)


def step_by_step(simulation, steps=5000):
    """Run for at most ``steps`` steps."""
    while not simulation.finished and steps:
        simulation.step()
        steps -= 1


def fedluck(**more):
    return FedLuck(steps=(1, 1), compression=(1.0, 1.0), **more)


def test_leases_too_short_for_any_visit_end_the_run(simulate):
    simulation = simulate(FedAvg(cohort=1), step_seconds=(1.0,), lease_seconds=0.5, stop=Stop(versions=1))
    with pytest.raises(OffbeatError, match=r"no update counted in the last \d+ visits.*server\.lease_seconds"):
        run(simulation)


def test_a_run_whose_clients_have_left_for_good_goes_on_to_its_end(simulate, intervals):
    world = {"availability": intervals([(0, 10)], [(0, 7)], [(2, 9)], [(1, 3)]), "every": 10.0, "lease_seconds": 5.0}
    evaluations = run(simulate(stop=Stop(virtual_seconds=45), **world))
    assert [evaluation.seconds for evaluation in evaluations] == [0, 10, 20, 30, 40, 45]
    assert len({evaluation[1:7] for evaluation in evaluations[2:]}) == 1
    with pytest.raises(
        OffbeatError, match=r"^nothing is left to happen at \d+ virtual seconds: every client stays off.*$"
    ):
        run(simulate(stop=Stop(updates=1000), **world))


def test_a_run_without_leases_that_waits_for_lost_clients_ends(simulate):
    simulation = simulate(FedAvg(cohort=4), loss_probability=(0.0, 1.0, 0.0, 0.0), stop=Stop(versions=3))
    with pytest.raises(OffbeatError, match=r"server\.lease_seconds"):
        run(simulation)


def test_periods_that_are_short_against_the_visits_are_not_in_vain(simulate, impatient):
    simulation = simulate(fedluck(period=0.01), step_seconds=(10.0,), stop=Stop(versions=2))
    assert ended(simulation, "ended_seconds") == [10.0, 20.0]


def test_periods_in_which_all_clients_are_offline_are_not_in_vain(simulate, impatient):
    # Online for the first 50 seconds of each 1000.
    groups = Alternating(20, 50.0, np.array([0]))
    simulation = simulate(fedluck(period=1.0), step_seconds=(30.0,), availability=groups, stop=Stop(versions=4))
    assert [math.floor(seconds) for seconds in ended(simulation, "ended_seconds")] == [30, 1010, 1040, 2020]


@pytest.mark.parametrize("comings", [False, True], ids=["always there", "coming and going"])
@pytest.mark.parametrize("stop", [Stop(versions=1), Stop(virtual_seconds=1e6)], ids=["versions", "time"])
def test_periods_in_which_all_clients_are_lost_end_the_run(simulate, impatient, comings, stop):
    simulation = simulate(
        fedluck(period=1.0),
        step_seconds=(1.0, 1.0),
        loss_probability=(1.0, 1.0),
        availability=Alternating(2, 2.5, np.array([0, 1])) if comings else None,
        stop=stop,
    )
    with pytest.raises(OffbeatError, match=r"no update counted in the last 21 visits and ticks"):
        step_by_step(simulation)
    assert simulation._now < 40


def test_clients_that_come_and_go_do_not_hide_that_all_others_are_lost(simulate):
    simulation = simulate(
        FedAvg(cohort=1),
        step_seconds=(1.0, 1.0),
        loss_probability=(1.0, 1.0),
        availability=Alternating(2, 2.5, np.array([0, 1])),
        stop=Stop(versions=1),
    )
    with pytest.raises(OffbeatError, match=r"nothing is left to happen at 1 virtual seconds.*server\.lease_seconds"):
        step_by_step(simulation)


def test_a_round_with_free_slots_waits_for_clients_that_come_and_go(simulate, intervals):
    # Client 0 comes and goes for an hour, and had its turn; client 1 comes after it.
    come_and_go = [(k + 0.5, k + 0.75) for k in range(3600)]
    simulation = simulate(
        FedAvg(cohort=2),
        step_seconds=(0.1, 0.1),
        availability=intervals(come_and_go, [(3700, 3800)]),
        stop=Stop(versions=1),
    )
    assert ended(simulation, "outcome") == ["counted", "counted"]


UNIX = 1.7e9
YEAR = 365 * 86_400.0


def evaluated(simulation, at_most):
    """Return how many evaluations a simulation makes before it raises."""
    made = []
    with pytest.raises(OffbeatError, match="no work begins or ends from") as caught:
        made.extend(islice(simulation.run(), at_most))
    return len(made), str(caught.value)


@pytest.mark.parametrize("stop", [Stop(updates=1000), Stop(virtual_seconds=2 * UNIX)], ids=["updates", "time"])
def test_evaluations_alone_do_not_keep_a_run_going(simulate, intervals, stop):
    trace = intervals(*4 * [[(0, 50), (UNIX, UNIX + 50)]])
    made, message = evaluated(simulate(availability=trace, every=10.0, lease_seconds=5.0, stop=stop), 120)
    assert made > 100
    assert f"to 1700000000 virtual seconds, longer than 365 days: {CLOCK_ADVICE}" in message


def test_a_paused_visit_does_not_keep_a_run_going(simulate, intervals):
    trace = intervals([(0, 0.5), (UNIX, UNIX + 50)])
    world = {"step_seconds": (2.0,), "availability": trace, "every": 10.0, "stop": Stop(updates=5)}
    assert evaluated(simulate(FedAvg(cohort=1), **world), 120)[0] == 100


def test_periods_alone_do_not_keep_a_run_going(simulate, intervals):
    trace = intervals([(0, 50), (UNIX, UNIX + 50)])
    simulation = simulate(fedluck(period=1.0), step_seconds=(1.0,), availability=trace, stop=Stop(updates=1000))
    with pytest.raises(OffbeatError, match=r"no work begins or ends from .* to 1700000000 virtual seconds"):
        step_by_step(simulation)


@pytest.mark.parametrize(("gap", "is_long"), [(YEAR - 10, False), (YEAR + 10, True)])
@pytest.mark.parametrize("every", [math.inf, YEAR / 500], ids=["without evaluations", "with evaluations"])
def test_a_gap_is_as_long_as_a_year_at_most(simulate, intervals, gap, is_long, every):
    trace = intervals([(0, 1), (1 + gap, 10 + gap)])
    world = {"step_seconds": (1.0,), "availability": trace, "every": every, "stop": Stop(updates=2)}
    simulation = simulate(FedAvg(cohort=1), **world)
    if is_long:
        with pytest.raises(OffbeatError, match=r"longer than 365 days"):
            run(simulation)
    else:
        run(simulation)
        assert simulation.coordinator.statistics.counted == 2


def test_the_last_work_survives_a_restart(simulate, intervals, tmp_path):
    trace = intervals([(0, 1), (YEAR, YEAR + 10)])
    world = {"step_seconds": (1.0,), "availability": trace, "lease_seconds": 0.9, "stop": Stop(updates=2)}
    simulation = simulate(FedAvg(cohort=1), **world)
    while simulation._guard._last_work < 1:
        simulation.step()
    assert resume(simulate(FedAvg(cohort=1), **world), simulation, tmp_path)._guard._last_work >= 1
