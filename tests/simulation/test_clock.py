import math
from itertools import islice

import numpy as np
import pytest
import torch
from offbeat_core.errors import OffbeatError

from offbeat.algorithms import AsyncCommSGD, FedAvg, FedBuff, FedLuck
from offbeat.algorithms.components.schedules.patterns import full, imbalanced, random, round_robin
from offbeat.algorithms.components.weights import inverse_time
from offbeat.population.availability import Alternating
from offbeat.simulation.clock import CLOCK_ADVICE, at_tick
from offbeat.simulation.totals import Stop
from tests.simulation.conftest import QuadraticTrainer, ended, local_plan, resume, run

TARGETS = torch.arange(4.0)[:, None] + torch.tensor([0.0, 10.0])
PATTERNS = {
    "round robin": round_robin(k=2, every=1),
    "full": full(3),
    "random": random(p=0.4, seed=3),
    "imbalanced": imbalanced(),
}


def by_hand(pattern, step_sizes, rounds, clients=4):
    """The paper's Algorithm 1, line by line; returns x_t for t = 0 … rounds."""
    x = torch.zeros(rounds + 1, 2, dtype=torch.float64)
    own = torch.zeros(clients, 2, dtype=torch.float64)  # x_i
    last = torch.zeros(clients, 2, dtype=torch.float64)  # y_i
    for t in range(rounds):
        moved = torch.zeros(2, dtype=torch.float64)
        talking = [client for client in range(clients) if pattern.next_round(client, t, clients) == t + 1]
        for client in range(clients):
            own[client] -= step_sizes(t) * (own[client] - TARGETS[client])
        for client in talking:
            moved += last[client] - own[client]
        x[t + 1] = x[t] - moved / clients
        for client in talking:
            own[client] = last[client] = x[t + 1]
    return x


def versions(simulation):
    """Run to the end; return all models, from version 0 on."""
    models = [simulation.coordinator.algorithm.model.clone()]
    while not simulation.finished:
        simulation.step()
        if simulation.coordinator.algorithm.version == len(models):
            models.append(simulation.coordinator.algorithm.model.clone())
    return torch.stack(models).double()


def fedluck(period=1.0, steps=1):
    """Visits of that many steps, with uploads of everything."""
    return FedLuck(period=period, steps=(steps, steps), compression=(1.0, 1.0))


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
def test_a_visit_of_whole_periods_ends_at_a_tick(simulate, period, step_seconds, upload_seconds, periods):
    simulation = simulate(
        fedluck(period),
        step_seconds=(step_seconds + (periods - 1) * period,),
        up=8 / upload_seconds,
        stop=Stop(updates=100),
    )
    for number, times in enumerate(ended(simulation, "assigned_seconds", "ended_seconds")):
        assert times == (number * periods * period, (number + 1) * periods * period)


def test_an_update_that_is_late_by_more_than_rounding_waits_for_the_next_period(simulate):
    simulation = simulate(fedluck(), step_seconds=(1.0 + 1e-9, 1.0), stop=Stop(versions=2))
    assert ended(simulation, "client", "version", "staleness")[:2] == [(1, 0, 0), (0, 0, 1)]


def test_time_never_goes_back_to_a_tick(simulate, intervals):
    # The client comes half a rounding after the tick, and its visit takes no time.
    late = 3.0 * (1 + 4e-16)
    assert late > 3.0
    simulation = simulate(
        fedluck(), step_seconds=(1e-300,), availability=intervals([(late, 10.0)]), stop=Stop(virtual_seconds=8.0)
    )
    times = []
    while not simulation.finished:
        simulation.step()
        times.append(simulation._now)
    assert times == sorted(times)
    assert simulation.ended[0].ended_seconds == late


def test_times_are_not_rounded_without_a_period(simulate):
    simulation = simulate(FedAvg(cohort=1), step_seconds=(0.1,), up=40.0, stop=Stop(versions=1))
    assert ended(simulation, "ended_seconds") == [0.1 + 0.2] != [0.3]


def test_staleness_is_the_number_of_periods_of_a_visit_less_one(simulate):
    """⌈d/T̃⌉ − 1 for a visit of d seconds; client 0 sees to it that every period makes a version."""
    period, steps = 0.7, 2
    calls = []
    simulation = simulate(
        fedluck(period, steps),
        step_seconds=(0.1, 0.35, 0.4, 0.7, 1.4, 2.11),  # d is 0.2, 0.7, 0.8, 1.4, 2.8 and 4.22
        plan=local_plan(9, lr=0.1),  # which FedLuck does not follow
        trainer=QuadraticTrainer(torch.zeros(6, 2)),
        stop=Stop(virtual_seconds=100.0),
        record=calls.append,
    )
    run(simulation)
    for client, takes in enumerate((1, 1, 2, 2, 4, 7)):  # ⌈d/T̃⌉
        visits = [visit for visit in simulation.ended if visit.client == client]
        assert {visit.staleness for visit in visits} == {takes - 1}
        # It begins anew with the version that it is in.
        begun = [round(visit.assigned_seconds / period) for visit in visits]
        assert begun == [number * takes for number in range(len(visits))]
        assert [visit.version for visit in visits] == begun
    assert {call.arguments["steps"] for call in calls if call.name == "receive"} == {steps}


@pytest.mark.parametrize(
    ("step_seconds", "decreasing"), [(1.0, False), (0.25, True)], ids=["in time", "early, with step sizes"]
)
@pytest.mark.parametrize("name", PATTERNS)
def test_async_comm_sgd_makes_the_papers_models(simulate, name, decreasing, step_seconds):
    pattern, calls = PATTERNS[name], []
    rates = inverse_time(strong_convexity=4.0) if decreasing else None
    simulation = simulate(
        AsyncCommSGD(pattern=pattern, step_sizes=rates),
        step_seconds=(step_seconds, 0.75, 1.0, 0.5),
        plan=local_plan(lr=0.2),
        stop=Stop(versions=40),
        record=calls.append,
    )
    models = versions(simulation)
    expected = by_hand(pattern, rates or (lambda _: 0.2), 40)
    torch.testing.assert_close(models, expected, rtol=0, atol=2e-5)
    talks = dict.fromkeys(range(4), 0)
    for visit in sorted(simulation.ended, key=lambda visit: visit.visit):
        assert visit.version == visit.assigned_seconds == talks[visit.client]
        talks[visit.client] = pattern.next_round(visit.client, visit.version, 4)
    received = {(c.arguments["client"], c.arguments["visit"]): c.arguments for c in calls if c.name == "receive"}
    for visit in simulation.ended:
        gap = pattern.next_round(visit.client, visit.version, 4) - visit.version
        assert received[visit.client, visit.visit]["steps"] == gap


def test_the_average_of_the_models_is_evaluated(simulate):
    algorithm = AsyncCommSGD(pattern=full(2), average=True)
    simulation = simulate(algorithm, step_seconds=(1.0,) * 4, stop=Stop(virtual_seconds=6.0), every=2.0)
    evaluations = run(simulation)
    # In each visit of two steps of ½ the mean goes ¾ of the way to 1.5, 11.5: 0, 0, ¾, ¾, 15/16, 15/16, 63/64 of it.
    shares = np.array([0, 0, 3 / 4, 3 / 4, 15 / 16, 15 / 16, 63 / 64])
    weights = (2.0 + np.arange(7)) ** 2
    means = np.cumsum(weights * shares) / np.cumsum(weights)
    assert [evaluation.version for evaluation in evaluations] == [0, 2, 4, 6]
    assert [evaluation.metrics["accuracy"] for evaluation in evaluations] == pytest.approx(1.5 * means[::2], rel=1e-6)
    assert simulation.model.tolist() == pytest.approx([1.5 * means[-1], 11.5 * means[-1]], rel=1e-6)
    assert simulation.coordinator.algorithm.model.tolist() == pytest.approx([1.5 * 63 / 64, 11.5 * 63 / 64])


def test_a_lease_that_ends_as_the_update_arrives_is_kept(simulate):
    simulation = simulate(FedAvg(cohort=1), step_seconds=(5.0,), lease_seconds=5.0, stop=Stop(versions=1))
    assert ended(simulation, "outcome") == ["counted"]


def test_a_periodic_algorithm_ticks_after_the_arrivals_of_its_instant(simulate):
    ticks = []

    class Periodic(FedBuff):
        period = 2.0

        def tick(self):
            ticks.append(self.buffer.count)
            return False

    run(simulate(Periodic(buffer_size=100, concurrency=1), step_seconds=(1.0,), stop=Stop(virtual_seconds=6.5)))
    assert ticks == [2, 4, 6]


def test_work_is_given_out_right_after_a_tick(simulate):
    class Waiting(FedBuff):
        period = 2.0
        open = False

        def slots(self):
            return super().slots() if self.open else 0

        def tick(self):
            self.open = True
            return False

    simulation = simulate(Waiting(buffer_size=1, concurrency=1), stop=Stop(updates=1))
    assert ended(simulation, "assigned_seconds") == [2.0]


@pytest.mark.parametrize(
    ("seconds", "now", "expected"),
    [
        (0.3, 0.0, 3 * 0.1),
        (0.1 + 0.7, 0.8, 0.8),
        (0.3001, 0.0, 0.3001),
        (0.3000000000000001, 0.3000000000000001, 0.3000000000000001),
    ],
)
def test_a_time_that_misses_a_tick_by_rounding_is_moved_onto_it(seconds, now, expected):
    assert at_tick(seconds, 0.1, now) == expected


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr("offbeat.simulation.clock._MAX_IN_VAIN", 20)


def step_by_step(simulation, steps=5000):
    """Run for at most ``steps`` steps."""
    while not simulation.finished and steps:
        simulation.step()
        steps -= 1


def ticking_fedluck(**more):
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
    simulation = simulate(ticking_fedluck(period=0.01), step_seconds=(10.0,), stop=Stop(versions=2))
    assert ended(simulation, "ended_seconds") == [10.0, 20.0]


def test_periods_in_which_all_clients_are_offline_are_not_in_vain(simulate, impatient):
    # Online for the first 50 seconds of each 1000.
    groups = Alternating(20, 50.0, np.array([0]))
    simulation = simulate(ticking_fedluck(period=1.0), step_seconds=(30.0,), availability=groups, stop=Stop(versions=4))
    assert [math.floor(seconds) for seconds in ended(simulation, "ended_seconds")] == [30, 1010, 1040, 2020]


@pytest.mark.parametrize("comings", [False, True], ids=["always there", "coming and going"])
@pytest.mark.parametrize("stop", [Stop(versions=1), Stop(virtual_seconds=1e6)], ids=["versions", "time"])
def test_periods_in_which_all_clients_are_lost_end_the_run(simulate, impatient, comings, stop):
    simulation = simulate(
        ticking_fedluck(period=1.0),
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
    simulation = simulate(ticking_fedluck(period=1.0), step_seconds=(1.0,), availability=trace, stop=Stop(updates=1000))
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
