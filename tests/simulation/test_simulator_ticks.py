"""Algorithms with a clock: what arrives with a tick, when nothing will ever come, and who talks when."""

import math

import numpy as np
import pytest
import torch

from offbeat.algorithms import AsyncCommSGD, FedAvg, FedLuck, LocalPlan
from offbeat.algorithms.components.patterns import full, imbalanced, random, round_robin
from offbeat.algorithms.components.step_sizes import inverse_time
from offbeat.algorithms.fedluck_choice import best_steps_and_compression
from offbeat.errors import OffbeatError
from offbeat.population.availability import Alternating
from offbeat.simulation.records import Stop

TARGETS = torch.arange(4.0)[:, None] + torch.tensor([0.0, 10.0])


def run(simulation):
    return list(simulation.run())


# --- What arrives as a period ends is in it. ---


@pytest.mark.parametrize(
    ("period", "step_seconds", "upload_seconds"),
    [
        (0.3, 0.1, 0.2),  # together 0.30000000000000004
        (0.7, 0.6, 0.1),  # 0.7, but not from every tick on
        (1.1, 0.4, 0.7),
        (1 / 3, 0.1, 1 / 3 - 0.1),
        (1e-3, 7e-4, 3e-4),
    ],
)
@pytest.mark.parametrize("periods", [1, 3])
def test_an_update_that_takes_whole_periods_is_in_the_last_of_them(
    simulate, period, step_seconds, upload_seconds, periods
):
    simulation = simulate(
        FedLuck(period=period, steps=(1, 1), compression=(1.0, 1.0)),
        step_seconds=(step_seconds + (periods - 1) * period,),
        down=1e300,
        up=8 / upload_seconds,
        stop=Stop(updates=300),
        every=1e9,
    )
    run(simulation)
    for number, visit in enumerate(simulation.ended):
        assert visit.assigned_seconds == number * periods * period
        assert visit.ended_seconds == (number + 1) * periods * period


def test_an_update_that_is_late_by_more_than_rounding_waits_for_the_next_period(simulate):
    simulation = simulate(
        FedLuck(period=1.0, steps=(1, 1), compression=(1.0, 1.0)),
        step_seconds=(1.0 + 1e-9, 1.0),
        down=1e300,
        up=1e300,
        stop=Stop(versions=2),
        every=1e9,
    )
    run(simulation)
    assert [(visit.client, visit.version, visit.staleness) for visit in simulation.ended][:2] == [(1, 0, 0), (0, 0, 1)]


def test_time_never_goes_back_for_a_tick(simulate, intervals):
    # The client comes half a rounding after the tick, and its visit takes no time.
    late = 3.0 * (1 + 4e-16)
    assert late > 3.0
    simulation = simulate(
        FedLuck(period=1.0, steps=(1, 1)),
        step_seconds=(1e-300,),
        down=1e300,
        up=1e300,
        availability=intervals([(late, 10.0)]),
        stop=Stop(virtual_seconds=8.0),
        every=1e9,
    )
    times = []
    while not simulation.finished:
        simulation.step()
        times.append(simulation._now)
    assert times == sorted(times)
    assert simulation.ended[0].ended_seconds == late


def test_algorithms_without_a_clock_are_left_their_roundings(simulate):
    simulation = simulate(FedAvg(cohort=1), step_seconds=(0.1,), down=1e300, up=40.0, stop=Stop(versions=1), every=1e9)
    run(simulation)
    assert simulation.ended[0].ended_seconds == 0.1 + 0.2 != 0.3


# --- FedLuck. ---


def test_staleness_is_the_number_of_periods_that_a_visit_runs_into_less_one(simulate):
    """⌈d/T̃⌉ − 1 for a visit of d seconds; client 0 sees to it that every period makes a version."""
    period, steps = 0.7, 2
    step_seconds = (0.1, 0.35, 0.4, 0.7, 1.4, 2.11)  # d is 0.2, 0.7, 0.8, 1.4, 2.8 and 4.22
    calls = []
    simulation = simulate(
        FedLuck(period=period, steps=(steps, steps), compression=(1.0, 1.0)),
        step_seconds=step_seconds,
        down=1e300,
        up=1e300,
        plan=LocalPlan(steps=9, batch_size=1, lr=0.1),  # which FedLuck does not follow
        trainer=simulate.trainer(torch.zeros(6, 2)),
        stop=Stop(virtual_seconds=100.0),
        every=1e9,
        record=calls.append,
    )
    run(simulation)
    periods = (1, 1, 2, 2, 4, 7)  # ⌈d/T̃⌉
    for client, takes in enumerate(periods):
        visits = [visit for visit in simulation.ended if visit.client == client]
        assert {visit.staleness for visit in visits} == {takes - 1}
        # It begins anew with the version that it is in.
        begun = [round(visit.assigned_seconds / period) for visit in visits]
        assert begun == [number * takes for number in range(len(visits))]
        assert [visit.version for visit in visits] == begun
    assert {call.arguments["steps"] for call in calls if call.name == "receive"} == {steps}


def test_each_client_gets_the_steps_and_the_compression_that_suit_it(simulate):
    calls = []
    length, step_seconds, up = 100, (0.1, 0.02), (100.0, 4000.0)
    simulation = simulate(
        FedLuck(period=1.0, steps=(1, 20), compression=(0.05, 0.5)),
        step_seconds=step_seconds,
        down=1e300,
        up=up,
        length=length,
        trainer=simulate.trainer(torch.ones(2, length)),
        plan=LocalPlan(steps=3, batch_size=1, lr=1e-4),
        stop=Stop(virtual_seconds=50.0),
        every=1e9,
        record=calls.append,
    )
    run(simulation)
    for client in (0, 1):
        # An uncompressed upload has 400 bytes.
        upload_seconds = 400 / up[client]
        steps, share = best_steps_and_compression(step_seconds[client], upload_seconds, 1.0, (1, 20), (0.05, 0.5))
        received = [call.arguments for call in calls if call.name == "receive" and call.arguments["client"] == client]
        assert len(received) > 5
        assert [update["steps"] for update in received] == [steps] * len(received)
        measured = [update["upload_seconds"] for update in received]
        assert measured == pytest.approx([upload_seconds] * len(received), rel=1e-6)
        entries = [update["vector"].resolve().count_nonzero().item() for update in received]
        assert entries == [max(1, math.ceil(share * length))] * len(received)


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


# --- AsyncCommSGD. ---

PATTERNS = {
    "round robin": round_robin(k=2, every=1),
    "full": full(3),
    "random": random(p=0.4, seed=3),
    "imbalanced": imbalanced(),
}


def by_hand(pattern, step_sizes, rounds, clients=4):
    """The paper's Algorithm 1, line by line; returns x_t, and that by Proposition B.1, for t = 0 … rounds."""
    x = torch.zeros(rounds + 1, 2, dtype=torch.float64)
    steps = torch.zeros(clients, rounds, 2, dtype=torch.float64)  # γ_s G_{i,s}
    own = torch.zeros(clients, 2, dtype=torch.float64)  # x_i
    last = torch.zeros(clients, 2, dtype=torch.float64)  # y_i
    talked = [0] * clients  # ρ_i
    proposition = [x[0]]
    for t in range(rounds):
        moved = torch.zeros(2, dtype=torch.float64)
        talking = [client for client in range(clients) if pattern.next_round(client, t, clients) == t + 1]
        for client in range(clients):
            steps[client, t] = step_sizes(t) * (own[client] - TARGETS[client])
            own[client] -= steps[client, t]
        for client in talking:
            moved += last[client] - own[client]
        x[t + 1] = x[t] - moved / clients
        for client in talking:
            own[client] = last[client] = x[t + 1]
            talked[client] = t + 1
        proposition.append(x[0] - sum(steps[client, : talked[client]].sum(0) for client in range(clients)) / clients)
    return x, torch.stack(proposition)


def versions(simulation):
    """Run to the end; return all models, from version 0 on."""
    models = [simulation.coordinator.algorithm.model.clone()]
    while not simulation.finished:
        simulation.step()
        if simulation.coordinator.algorithm.version == len(models):
            models.append(simulation.coordinator.algorithm.model.clone())
    return torch.stack(models).double()


@pytest.mark.parametrize("step_seconds", [1.0, 0.25], ids=["in time", "early"])
@pytest.mark.parametrize("decreasing", [False, True], ids=["one step size", "step sizes"])
@pytest.mark.parametrize("name", PATTERNS)
def test_visits_run_from_talk_to_talk_and_make_the_papers_models(simulate, name, decreasing, step_seconds):
    pattern, calls = PATTERNS[name], []
    rates = inverse_time(strong_convexity=4.0) if decreasing else None
    simulation = simulate(
        AsyncCommSGD(pattern=pattern, step_sizes=rates),
        step_seconds=(step_seconds, 0.75, 1.0, 0.5),
        down=1e300,
        up=1e300,
        plan=LocalPlan(steps=1, batch_size=1, lr=0.2),
        stop=Stop(versions=40),
        every=1e9,
        record=calls.append,
    )
    models = versions(simulation)
    expected, proposition = by_hand(pattern, rates or (lambda _: 0.2), 40)
    torch.testing.assert_close(proposition, expected, rtol=0, atol=1e-9)
    torch.testing.assert_close(models, expected, rtol=0, atol=2e-5)
    talks = dict.fromkeys(range(4), 0)
    for visit in sorted(simulation.ended, key=lambda visit: visit.visit):
        assert visit.version == visit.assigned_seconds == talks[visit.client]
        talks[visit.client] = pattern.next_round(visit.client, visit.version, 4)
    received = {(c.arguments["client"], c.arguments["visit"]): c.arguments for c in calls if c.name == "receive"}
    for visit in simulation.ended:
        gap = pattern.next_round(visit.client, visit.version, 4) - visit.version
        assert received[visit.client, visit.visit]["steps"] == gap


def test_what_is_evaluated_is_the_average_of_the_models(simulate):
    simulation = simulate(
        AsyncCommSGD(pattern=full(2), average=True),
        step_seconds=(1.0,) * 4,
        down=1e300,
        up=1e300,
        stop=Stop(virtual_seconds=6.0),
        every=2.0,
    )
    evaluations = run(simulation)
    # In each visit of two steps of ½ the mean goes ¾ of the way to 1.5, 11.5: 0, 0, ¾, ¾, 15/16, 15/16, 63/64 of it.
    shares = np.array([0, 0, 3 / 4, 3 / 4, 15 / 16, 15 / 16, 63 / 64])
    weights = (2.0 + np.arange(7)) ** 2
    means = np.cumsum(weights * shares) / np.cumsum(weights)
    assert [evaluation.version for evaluation in evaluations] == [0, 2, 4, 6]
    assert [evaluation.metrics["accuracy"] for evaluation in evaluations] == pytest.approx(1.5 * means[::2], rel=1e-6)
    assert simulation.model.tolist() == pytest.approx([1.5 * means[-1], 11.5 * means[-1]], rel=1e-6)
    assert simulation.coordinator.algorithm.model.tolist() == pytest.approx([1.5 * 63 / 64, 11.5 * 63 / 64])


# --- Waiting in vain. ---


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr("offbeat.simulation.stall_guard._MAX_IN_VAIN", 20)


def step_by_step(simulation, steps=5000):
    """Run, but not for ever."""
    while not simulation.finished and steps:
        simulation.step()
        steps -= 1


def fedluck(**more):
    return FedLuck(steps=(1, 1), compression=(1.0, 1.0), **more)


def test_a_period_that_is_short_against_the_visits_is_no_reason_to_stop(simulate, impatient):
    simulation = simulate(
        fedluck(period=0.01), step_seconds=(10.0,), down=1e300, up=1e300, stop=Stop(versions=2), every=1e9
    )
    run(simulation)
    assert [visit.ended_seconds for visit in simulation.ended] == [10.0, 20.0]


def test_nights_are_no_reason_to_stop(simulate, impatient):
    # There for the first 50 seconds of each 1000.
    groups = Alternating(20, 50.0, np.array([0]))
    simulation = simulate(fedluck(period=1.0), step_seconds=(30.0,), availability=groups, stop=Stop(versions=4))
    run(simulation)
    assert [math.floor(visit.ended_seconds) for visit in simulation.ended] == [30, 1010, 1040, 2020]


@pytest.mark.parametrize("comings", [False, True], ids=["always there", "coming and going"])
@pytest.mark.parametrize("stop", [Stop(versions=1), Stop(virtual_seconds=1e6)], ids=["versions", "time"])
def test_a_world_of_lost_clients_is_an_error(simulate, impatient, comings, stop):
    groups = Alternating(2, 2.5, np.array([0, 1])) if comings else None
    simulation = simulate(
        fedluck(period=1.0),
        step_seconds=(1.0, 1.0),
        loss_probability=(1.0, 1.0),
        availability=groups,
        stop=stop,
        every=1e9,
    )
    with pytest.raises(OffbeatError, match=r"no update counted in the last 21 visits and ticks"):
        step_by_step(simulation)
    assert simulation._now < 40


def test_without_a_clock_too_coming_and_going_does_not_hide_that_all_are_lost(simulate):
    simulation = simulate(
        FedAvg(cohort=1),
        step_seconds=(1.0, 1.0),
        loss_probability=(1.0, 1.0),
        availability=Alternating(2, 2.5, np.array([0, 1])),
        stop=Stop(versions=1),
        every=1e9,
    )
    with pytest.raises(OffbeatError, match=r"nothing is left to happen at 1 virtual seconds.*server\.lease_seconds"):
        step_by_step(simulation)


def test_a_round_that_has_places_left_waits_for_who_comes_and_goes(simulate, intervals):
    # Client 0 comes and goes for an hour, and had its turn; client 1 comes after it.
    come_and_go = [(k + 0.5, k + 0.75) for k in range(3600)]
    simulation = simulate(
        FedAvg(cohort=2),
        step_seconds=(0.1, 0.1),
        availability=intervals(come_and_go, [(3700, 3800)]),
        stop=Stop(versions=1),
        every=1e9,
    )
    run(simulation)
    assert [visit.outcome for visit in simulation.ended] == ["counted", "counted"]
