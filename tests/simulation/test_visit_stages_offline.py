"""Clients that come and go: their visits pause or are lost, and only available clients get work."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from offbeat.algorithms import FedAsync, FedAvg, FedBuff, FedFa
from offbeat.simulation.totals import Stop
from tests.effort import cases
from tests.simulation.conftest import QuadraticTrainer, ended, one_by_one, run, times_of

# One client's visit: 8 bytes down at 4 B/s, one step of 3 s, 8 bytes up at 2 B/s; 9 s together.
VISIT = {"step_seconds": (3.0,), "down": 4.0, "up": 2.0, "stop": Stop(virtual_seconds=99)}


@pytest.mark.parametrize(
    ("times", "end", "upload_seconds"),
    [
        ([(0, 1), (6, 99)], 14, 4),  # 5 s offline in the download
        ([(0, 3), (10, 99)], 16, 4),  # 7 s in the step
        ([(0, 6), (8, 99)], 11, 6),  # 2 s in the upload
        ([(0, 3), (4, 5), (7, 7.5), (9.5, 99)], 14, 4),  # three times in the step
        ([(0, 1), (2, 5), (9, 10), (20, 99)], 24, 14),  # in each of the three, 1 + 4 + 10 s
        ([(0, 2), (5, 99)], 12, 4),  # as the download ends
        ([(0, 5), (7, 99)], 11, 6),  # as the step ends: it asks, and then uploads when it is back
        ([(3, 4), (6, 99)], 14, 4),  # it begins when the client is first there
        ([(0, 9), (50, 51)], 9, 4),  # as the upload ends
    ],
)
def test_a_visit_takes_longer_by_the_time_offline(simulate, intervals, times, end, upload_seconds):
    calls = []
    simulation = simulate(**VISIT, availability=intervals(times), record=calls.append)
    run(simulation)
    assert simulation.ended[0][4:] == (times[0][0], end, 8, 8, "counted")
    heard = next(call.arguments["upload_seconds"] for call in calls if call.name == "receive")
    assert heard == upload_seconds


@pytest.mark.parametrize(
    ("times", "end", "sent"),
    [
        ([(0, 1), (6, 99)], 1, 0),  # in the download, which counts in spite of that
        ([(0, 2), (6, 99)], 2, 0),  # as it ends
        ([(0, 3), (6, 99)], 3, 0),  # in the step
        ([(0, 5), (6, 99)], 5, 0),  # as it ends
        ([(0, 6), (8, 99)], 6, 2),  # 1 s into the upload
        ([(0, 8.25), (9, 99)], 8.25, 6),  # 3.25 s: six whole bytes and a half
    ],
)
def test_a_visit_is_lost_as_the_client_goes_offline(simulate, intervals, times, end, sent):
    simulation = simulate(**VISIT, availability=intervals(times), when_away="lose", lease_seconds=30.0, every=10.0)
    evaluations = run(simulation)
    first, second = simulation.ended[:2]
    assert (first.staleness, *first[4:]) == (None, 0, end, 8, sent, "lost")
    # It is back for long, but the server only learns of the loss as the lease ends.
    assert (second.assigned_seconds, second.ended_seconds, second.outcome) == (30, 39, "counted")
    at_20 = evaluations[2]
    assert (at_20.bytes_down, at_20.bytes_up, at_20.lost) == (8, sent, 1)


@pytest.mark.parametrize("leaves", [1, 3, 6])
def test_a_lost_visit_is_not_trained_along_with_the_rest(simulate, intervals, leaves):
    trainer = QuadraticTrainer(torch.zeros(2, 2), batch_limit=9)
    simulation = simulate(
        one_by_one(2),
        **VISIT | {"step_seconds": (3.0, 4.0), "stop": Stop(updates=1)},
        availability=intervals([(0, leaves)], [(0, 99)]),
        when_away="lose",
        trainer=trainer,
    )
    run(simulation)
    assert trainer.batches == [[(1, 0)]]


def test_a_refused_visit_is_not_trained_along_with_the_rest(simulate, intervals):
    # Client 0 ends the round at 5 s and leaves; 1 asks at 6 s and leaves; the new model is read when 2 comes.
    trainer = QuadraticTrainer(torch.zeros(3, 2), batch_limit=9)
    simulation = simulate(
        FedAvg(cohort=1, over_selection=2.0),
        step_seconds=(1.0, 4.0, 1.0),
        down=4.0,
        up=4.0,
        availability=intervals([(0, 5)], [(0, 6)], [(10, 99)]),
        trainer=trainer,
        stop=Stop(virtual_seconds=11),
    )
    assert ended(simulation, "client", "outcome", "bytes_up") == [(0, "counted", 8), (1, "unused", 0)]
    assert trainer.batches == [[(0, 0)]]


COMINGS = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 6)), min_size=1, max_size=8)
ALGORITHMS = {
    "fedavg": lambda: FedAvg(cohort=2, over_selection=1.5),
    "fedasync": lambda: FedAsync(concurrency=3),
    "fedbuff": lambda: FedBuff(buffer_size=2, concurrency=2),
}
END = 60


def fate(times, assigned, phases, when_away, lost):
    """Live through a visit second by second.

    Returns when it asks whether to upload, and when and how it ends: (asked, ended, lost, bytes sent of 8).
    """
    there = set(itertools.chain.from_iterable(range(begin, end) for begin, end in times))
    now, asked = assigned, math.inf
    for phase, seconds in enumerate(phases):
        if phase == 2:
            asked = now
            if lost:
                return asked, now, True, 0
        done = 0
        while done < seconds:
            if now > END:
                return asked, math.inf, True, 0
            if now in there:
                done += 1
            elif when_away == "lose":
                return asked, now, True, done * 8 // seconds if phase == 2 else 0
            now += 1
    return asked, now, False, 8


@settings(max_examples=cases(40))
@given(
    name=st.sampled_from(sorted(ALGORITHMS)),
    when_away=st.sampled_from(["pause", "lose"]),
    comings=st.lists(COMINGS, min_size=4, max_size=4),
    steps=st.lists(st.integers(1, 5), min_size=4, max_size=4),
    down=st.sampled_from([1, 2, 4]),
    up=st.sampled_from([1, 2, 4]),
    lossy=st.booleans(),
    lease=st.sampled_from([3.0, 8.0, 20.0]),
)
def test_random_worlds_run_as_they_do_second_by_second(
    simulate, intervals, name, when_away, comings, steps, down, up, lossy, lease
):
    times = [times_of(each) for each in comings]
    calls = []
    simulation = simulate(
        ALGORITHMS[name](),
        step_seconds=tuple(map(float, steps)),
        down=8 / down,
        up=8 / up,
        loss_probability=(0.0, 0.5, 0.0, 0.5) if lossy else None,
        availability=intervals(*times),
        when_away=when_away,
        lease_seconds=lease,
        stop=Stop(virtual_seconds=END),
        record=calls.append,
    )
    while not simulation.finished:
        simulation.step()
        now = simulation._now
        instant_is_over = simulation._queue.next_seconds > now and not simulation._attendance.assignment_due
        if name != "fedavg" and instant_is_over and simulation.coordinator.algorithm.slots() > 0:
            idle = {c for c in range(4) if any(begin <= now < end for begin, end in times[c])}
            assert idle <= set(simulation._stages.visits)

    assigned = {}
    for call in calls:
        if call.name == "assign":
            for client in call.arguments["clients"]:
                assigned.setdefault(client, []).append(call.arguments["now"])
    ended = {(visit.client, visit.visit): visit for visit in simulation.ended}
    for client, moments in assigned.items():
        phases = (down, steps[client], up)
        for number, now in enumerate(moments):
            assert any(begin <= now < end for begin, end in times[client])
            lost = simulation._stages._devices.visit_is_lost(1, client, number)
            asked, end, is_lost, sent = fate(times[client], int(now), phases, when_away, lost)
            visit = ended.pop((client, number), None)
            if visit is None:
                assert number == len(moments) - 1
                assert end > END
                continue
            if number + 1 < len(moments):
                assert visit.ended_seconds <= moments[number + 1]
            assert (visit.assigned_seconds, visit.bytes_down) == (now, 8)
            if visit.outcome == "unused" and visit.bytes_up == 0:
                assert visit.ended_seconds == asked
            else:
                assert (visit.ended_seconds, visit.outcome == "lost", visit.bytes_up) == (end, is_lost, sent)
    assert ended == {}


ASKING = {
    "fedasync": (FedAsync, {"concurrency": 3}),
    "fedbuff": (FedBuff, {"buffer_size": 2, "concurrency": 4}),
    "fedfa": (FedFa, {"window": 3, "concurrency": 3}),
}


@pytest.mark.parametrize("name", ASKING)
@given(
    comings=st.none() | st.integers(0, 10**6).map(lambda seed: np.random.default_rng(seed).uniform(1.0, 9.0, (4, 8))),
    when_away=st.sampled_from(["pause", "lose"]),
    lease_seconds=st.sampled_from([math.inf, 9.0]),
    lossy=st.booleans(),
)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_offers_change_nothing_for_an_algorithm_that_wants_all_updates(
    simulate, intervals, name, comings, when_away, lease_seconds, lossy
):
    algorithm, settings = ASKING[name]

    class Unsure(algorithm):
        wants_all = False

    def outcome(algorithm):
        times = [] if comings is None else np.cumsum(comings, axis=1).reshape(4, -1, 2).tolist()
        simulation = simulate(
            algorithm(**settings),
            step_seconds=(0.71, 1.37, 2.93, 4.19),
            down=5.0,
            up=3.0,
            availability=intervals(*times) if times else None,
            when_away=when_away,
            lease_seconds=lease_seconds,
            loss_probability=(0.5, 0.0, 0.0, 0.5) if lossy else None,
            stop=Stop(virtual_seconds=60.0),
        )
        return run(simulation), simulation.ended, simulation.model.tolist()

    assert outcome(algorithm) == outcome(Unsure)
