"""Clients that become available and go offline."""

import numpy as np
import pytest
import torch

from offbeat.algorithms import FedAvg, FedLuck
from offbeat.algorithms.fedluck_choice import best_steps_and_compression
from offbeat.population.availability import Alternating
from offbeat.simulation.totals import Stop
from tests.simulation.conftest import QuadraticTrainer, ended, local_plan, one_by_one, run, visits_of


def longest_queue(simulation):
    longest = 0
    while not simulation.finished:
        simulation.step()
        longest = max(longest, len(simulation._queue._heap))
    return longest


def test_a_client_whose_visit_was_lost_gets_work_once_it_is_back(simulate, intervals):
    simulation = simulate(
        one_by_one(3),
        step_seconds=(3.0, 3.0, 3.0),
        availability=intervals([(0, 2), (6, 99)], [(0, 99)], [(90, 99)]),
        when_away="lose",
    )
    visits = ended(simulation, "client", "assigned_seconds", "outcome")
    assert [visit for visit in visits if visit[0] == 0][:2] == [(0, 0, "lost"), (0, 6, "counted")]
    assert simulation.coordinator.statistics.lost == 1


def test_idle_clients_that_go_offline_get_no_work_until_they_are_back(simulate, intervals):
    # Client 0 works from 0 to 5 and leaves; client 1 waits from 1 to 4, client 2 from 2 to 3 and from 8 on.
    simulation = simulate(
        step_seconds=(3.0, 3.0, 3.0),
        up=4.0,
        availability=intervals([(0, 5)], [(1, 4), (20, 99)], [(2, 3), (8, 13)]),
        stop=Stop(virtual_seconds=31),
    )
    assert ended(simulation, "client", "assigned_seconds") == [(0, 0), (2, 8), (1, 20), (1, 25)]


def test_a_client_that_leaves_as_its_visit_ends_frees_its_slot_at_once(simulate, intervals):
    # A visit takes 9 s: 8 bytes down at 4 B/s, one step, 8 bytes up at 2 B/s.
    simulation = simulate(step_seconds=(3.0, 3.0), down=4.0, up=2.0, availability=intervals([(0, 9)], [(1, 99)]))
    assert ended(simulation, "client", "assigned_seconds") == [(0, 0), (1, 9)]


def test_a_client_that_leaves_as_it_is_refused_frees_its_slot_at_once(simulate, intervals):
    # Client 0 makes version 1 at 4 s and leaves, to client 2's gain; client 1 is too stale as it asks at 6 s.
    simulation = simulate(
        one_by_one(2),
        step_seconds=(1.0, 4.0, 50.0, 1.0),
        down=4.0,
        up=8.0,
        availability=intervals([(0, 4)], [(0, 6)], [(1, 99)], [(5, 99)]),
        max_staleness=0,
        stop=Stop(virtual_seconds=10.5),
    )
    expected = [(0, 0, "counted"), (1, 0, "unused"), (3, 6, "counted")]
    assert ended(simulation, "client", "assigned_seconds", "outcome") == expected


def test_a_run_without_available_clients_ends_as_it_began(simulate, intervals):
    evaluations = run(simulate(step_seconds=(1.0,), availability=intervals([(50, 60)]), every=10.0))
    assert [(evaluation.seconds, evaluation.bytes_down) for evaluation in evaluations] == [(0, 0), (10, 0), (20, 0)]


@pytest.mark.parametrize("times", [[(0, 1e6)], [(k, k + 0.75) for k in range(100)]], ids=["one long", "many short"])
@pytest.mark.parametrize("when_away", ["pause", "lose"])
def test_the_queue_stays_short(simulate, intervals, times, when_away):
    simulation = simulate(
        one_by_one(2),
        step_seconds=(0.2, 1e5),
        availability=intervals(times, times),
        when_away=when_away,
        lease_seconds=0.3,
        stop=Stop(virtual_seconds=100),
    )
    assert longest_queue(simulation) <= 10
    assert simulation.coordinator.statistics.counted >= 290


def test_the_queue_stays_short_when_idle_clients_come_and_go(simulate, intervals):
    come_and_go = [(k + 0.5, k + 0.75) for k in range(500)]
    simulation = simulate(
        step_seconds=(1e5, 1.0, 1.0),
        availability=intervals([(0, 1e6)], come_and_go, come_and_go),
        stop=Stop(virtual_seconds=500),
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
    assert ended(simulation, "assigned_seconds") == [0, 0, 10, 10, 20, 20, 30, 30, 40, 40]
    clients = visits_of(simulation, "client")
    assert [sorted(clients[i : i + 2]) for i in (0, 2, 4)] == [[0, 2], [1, 3], [0, 2]]


def test_a_client_is_measured_when_it_comes_for_its_first_visit(simulate, trace_link, intervals):
    # 1000 bytes per second for 10 s, then 10 for 1000 s. A whole update has 400 bytes.
    calls, length = [], 100
    simulation = simulate(
        FedLuck(period=1.0, steps=(1, 20), compression=(0.01, 1.0)),
        step_seconds=(0.1, 0.1, 0.1),
        up=trace_link(*[[(10.0, 1000.0), (1000.0, 10.0)]] * 3),
        availability=intervals([(0, 2000)], [(9.8, 2000)], [(50, 2000)]),
        length=length,
        trainer=QuadraticTrainer(torch.ones(3, length)),
        plan=local_plan(3, lr=1e-4),
        stop=Stop(virtual_seconds=70.0),
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
