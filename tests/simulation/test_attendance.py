"""Clients that become available and go offline."""

import numpy as np
import pytest
import torch

from offbeat.algorithms import FedAvg, FedBuff, FedLuck, LocalPlan
from offbeat.algorithms.fedluck_choice import best_steps_and_compression
from offbeat.population.availability import Alternating
from offbeat.simulation.records import Stop
from tests.simulation.conftest import run

# One client's visit: 8 bytes down at 4 B/s, one step of 3 s, 8 bytes up at 2 B/s; 9 s together.
VISIT = {"step_seconds": (3.0,), "down": 4.0, "up": 2.0}


def longest_queue(simulation):
    longest = 0
    while not simulation.finished:
        simulation.step()
        longest = max(longest, len(simulation._queue._heap))
    return longest


def test_a_client_whose_visit_was_lost_takes_new_work_when_it_is_back(simulate, intervals):
    simulation = simulate(
        FedBuff(buffer_size=1, concurrency=3),
        step_seconds=(3.0, 3.0, 3.0),
        availability=intervals([(0, 2), (6, 99)], [(0, 99)], [(90, 99)]),
        when_away="lose",
        stop=Stop(virtual_seconds=20),
    )
    run(simulation)
    of_first = [(visit.assigned_seconds, visit.outcome) for visit in simulation.ended if visit.client == 0]
    assert of_first[:2] == [(0, "lost"), (6, "counted")]
    assert simulation.coordinator.statistics.lost == 1


def test_idle_clients_that_go_away_are_passed_over_until_they_are_back(simulate, intervals):
    # Client 0 works from 0 to 5 and leaves; client 1 waits from 1 to 4, client 2 from 2 to 3 and from 8 on.
    simulation = simulate(
        FedBuff(buffer_size=1, concurrency=1),
        step_seconds=(3.0, 3.0, 3.0),
        down=1e300,
        up=4.0,
        availability=intervals([(0, 5)], [(1, 4), (20, 99)], [(2, 3), (8, 13)]),
        stop=Stop(virtual_seconds=31),
    )
    run(simulation)
    assigned = [(visit.client, visit.assigned_seconds) for visit in simulation.ended]
    assert assigned == [(0, 0), (2, 8), (1, 20), (1, 25)]


def test_a_client_that_leaves_as_it_ends_makes_room_for_another_at_once(simulate, intervals):
    simulation = simulate(
        FedBuff(buffer_size=1, concurrency=1),
        **VISIT | {"step_seconds": (3.0, 3.0)},
        availability=intervals([(0, 9)], [(1, 99)]),
        stop=Stop(virtual_seconds=20),
    )
    run(simulation)
    assert [(visit.client, visit.assigned_seconds) for visit in simulation.ended] == [(0, 0), (1, 9)]


def test_a_client_that_leaves_as_it_is_refused_makes_room_for_another_at_once(simulate, intervals):
    # Client 0 makes version 1 at 4 s and leaves, to client 2's gain; client 1 is too stale as it asks at 6 s.
    simulation = simulate(
        FedBuff(buffer_size=1, concurrency=2),
        step_seconds=(1.0, 4.0, 50.0, 1.0),
        down=4.0,
        up=8.0,
        availability=intervals([(0, 4)], [(0, 6)], [(1, 99)], [(5, 99)]),
        max_staleness=0,
        stop=Stop(virtual_seconds=10.5),
    )
    run(simulation)
    assert [(visit.client, visit.assigned_seconds, visit.outcome) for visit in simulation.ended] == [
        (0, 0, "counted"),
        (1, 0, "unused"),
        (3, 6, "counted"),
    ]


def test_when_nobody_is_ever_there_the_run_ends_as_it_began(simulate, intervals):
    world = {"step_seconds": (1.0,), "availability": intervals([(50, 60)])}
    evaluations = run(simulate(FedBuff(), stop=Stop(virtual_seconds=20), **world))
    assert [(evaluation.seconds, evaluation.bytes_down) for evaluation in evaluations] == [(0, 0), (10, 0), (20, 0)]


@pytest.mark.parametrize("times", [[(0, 1e6)], [(k, k + 0.75) for k in range(400)]], ids=["one long", "many short"])
@pytest.mark.parametrize("when_away", ["pause", "lose"])
def test_the_queue_stays_short(simulate, intervals, times, when_away):
    simulation = simulate(
        FedBuff(buffer_size=1, concurrency=2),
        step_seconds=(0.2, 1e5),
        availability=intervals(times, times),
        when_away=when_away,
        lease_seconds=0.3,
        stop=Stop(virtual_seconds=400),
        every=1e5,
    )
    assert longest_queue(simulation) <= 10
    assert simulation.coordinator.statistics.counted >= 1190


def test_the_queue_stays_short_when_the_idle_come_and_go(simulate, intervals):
    come_and_go = [(k + 0.5, k + 0.75) for k in range(2000)]
    simulation = simulate(
        FedBuff(buffer_size=1, concurrency=1),
        step_seconds=(1e5, 1.0, 1.0),
        availability=intervals([(0, 1e6)], come_and_go, come_and_go),
        stop=Stop(virtual_seconds=2000),
        every=1e5,
    )
    assert longest_queue(simulation) <= 6
    assert simulation.coordinator.statistics.assigned == 1


def test_groups_that_take_turns_work_in_their_turns(simulate):
    # Each visit takes a whole turn, and ends as the turn does.
    simulation = simulate(
        FedAvg(cohort=2),
        step_seconds=(4.0,) * 4,
        down=4.0,
        up=2.0,
        availability=Alternating(2, 10.0, np.array([0, 1, 0, 1])),
        stop=Stop(virtual_seconds=55),
    )
    run(simulation)
    assert [visit.assigned_seconds for visit in simulation.ended] == [0, 0, 10, 10, 20, 20, 30, 30, 40, 40]
    assert [sorted(v.client for v in simulation.ended[i : i + 2]) for i in (0, 2, 4)] == [[0, 2], [1, 3], [0, 2]]


def test_a_client_is_measured_when_it_comes_for_its_first_visit(simulate, trace_link, intervals):
    # 1000 bytes per second for 10 s, then 10 for 1000 s. A whole update has 400 bytes.
    calls, length = [], 100
    simulation = simulate(
        FedLuck(period=1.0, steps=(1, 20), compression=(0.01, 1.0)),
        step_seconds=(0.1, 0.1, 0.1),
        down=1e300,
        up=trace_link(*[[(10.0, 1000.0), (1000.0, 10.0)]] * 3),
        availability=intervals([(0, 2000)], [(9.8, 2000)], [(50, 2000)]),
        length=length,
        trainer=simulate.trainer(torch.ones(3, length)),
        plan=LocalPlan(steps=3, batch_size=1, lr=1e-4),
        stop=Stop(virtual_seconds=70.0),
        every=1e9,
        record=calls.append,
    )
    run(simulation)
    speeds = [call.arguments for call in calls if call.name == "note_speed"]
    assert [(speed["now"], speed["client"]) for speed in speeds] == [(0.0, 0), (9.8, 1), (50.0, 2)]
    # 0.4 s; 0.2 s for the first 200 bytes and 20 s for the others; 400 bytes at 10 bytes per second.
    assert [speed["upload_seconds"] for speed in speeds] == pytest.approx([0.4, 20.2, 40.0])
    for client, upload_seconds in enumerate((0.4, 20.2, 40.0)):
        steps, _ = best_steps_and_compression(0.1, upload_seconds, 1.0, (1, 20), (0.01, 1.0))
        received = [call.arguments for call in calls if call.name == "receive" and call.arguments["client"] == client]
        assert received[0]["steps"] == steps


def test_an_algorithm_that_does_not_measure_hears_of_no_speed(simulate):
    calls = []
    run(simulate(FedAvg(cohort=2), record=calls.append))
    assert "note_speed" not in {call.name for call in calls}
