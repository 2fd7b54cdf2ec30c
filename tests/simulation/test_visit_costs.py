import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from offbeat_core.errors import OffbeatError

from offbeat.algorithms import SCAFFOLD, FedBuff, SequentialSGD
from offbeat.algorithms.components import Compression
from offbeat.compression import top_k
from offbeat.population.availability import Alternating, Always
from offbeat.population.devices.client_devices import ConstantLink, Devices
from offbeat.simulation import visit_costs
from offbeat.simulation.totals import Stop
from offbeat.simulation.visit_costs import PlanCosts, Timing
from tests.simulation.conftest import QuadraticTrainer, local_plan, one_by_one, run, times_of, visits_of


def make(availability, when_away, *, step_seconds=(1.0,), down=None, up=None):
    link = ConstantLink(np.ones(len(step_seconds)))
    zeros = np.zeros(len(step_seconds))
    return Timing(Devices(np.array(step_seconds), down or link, up or link, zeros, availability, when_away))


# Seconds offline and online, one after the other; all are integers, so that floats are exact.
COMINGS = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=8)


def seconds_online(comings):
    """Return the whole seconds at which a client is online, and its intervals."""
    times = times_of(comings)
    return {second for begin, end in times for second in range(begin, end)}, times


def second_by_second(online, start, amount, rate, when_away):
    """Go through the seconds one by one, in each of which rate(second) goes through if the client is online."""
    left = amount
    for second in range(start, 100):
        if second in online:
            if left <= rate(second):
                return second + left / rate(second), 0
            left -= rate(second)
        elif when_away == "lose":
            return second, left
    return math.inf, left


@pytest.mark.parametrize("when_away", ["pause", "lose"])
@given(comings=COMINGS, start=st.integers(0, 20), amount=st.integers(1, 12))
def test_transfers_and_steps_end_as_they_do_second_by_second(intervals, when_away, comings, start, amount):
    online, times = seconds_online(comings)
    world = make(intervals(times), when_away, step_seconds=(0.5,))
    expected = second_by_second(online, start, amount, lambda _: 1, when_away)
    assert world.download(0, float(start), float(amount)) == expected
    assert world.upload(0, float(start), float(amount)) == expected
    end, left = world.compute(0, float(start), 2 * amount)
    assert (end, left) == expected


@pytest.mark.parametrize("when_away", ["pause", "lose"])
@given(
    comings=COMINGS,
    start=st.integers(0, 20),
    size=st.integers(1, 40),
    rates=st.lists(st.sampled_from([0, 1, 2, 4]), min_size=1, max_size=5).filter(any),
)
def test_traces_are_followed_second_by_second(intervals, trace_link, when_away, comings, start, size, rates):
    online, times = seconds_online(comings)
    link = trace_link([(1, rate) for rate in rates])
    world = make(intervals(times), when_away, down=link)
    expected = second_by_second(online, start, size, lambda second: rates[second % len(rates)], when_away)
    assert world.download(0, float(start), float(size)) == expected


def test_each_way_has_its_own_link_and_each_client_its_own_speed():
    world = make(
        Always(),
        "pause",
        step_seconds=(1.0, 3.0),
        down=ConstantLink(np.array([1.0, 2.0])),
        up=ConstantLink(np.array([4.0, 8.0])),
    )
    endings = [(world.download(c, 1.0, 8.0), world.compute(c, 1.0, 2), world.upload(c, 1.0, 8.0)) for c in (0, 1)]
    assert [[seconds for seconds, _ in each] for each in endings] == [[9.0, 3.0, 3.0], [5.0, 7.0, 2.0]]


@pytest.mark.parametrize("when_away", ["pause", "lose"])
@pytest.mark.parametrize("later", [[], [(50.0, 60.0)]])
@pytest.mark.parametrize(
    ("start", "away", "rate", "size"),
    [
        (0.1, 0.5, 3.0, 3.0 * (0.5 - 0.1)),  # in floats start + size / rate > away, though all that has gone through
        (0.2, 0.5, 3.0, 0.9),  # rate · (away − start) < size, though start + size / rate = away
    ],
)
def test_rounding_loses_no_upload_that_ends_as_the_client_goes_offline(
    intervals, when_away, later, start, away, rate, size
):
    assert (start + size / rate > away) == (rate * (away - start) >= size)
    world = make(intervals([(start, away), *later]), when_away, up=ConstantLink(np.array([rate])))
    assert world.upload(0, start, size) == (away, 0.0)


def test_a_link_without_bandwidth_whenever_the_client_is_online_is_an_error(trace_link, monkeypatch):
    monkeypatch.setattr(visit_costs, "_MAX_INTERVALS", 1000)
    dead_by_turns = trace_link([(1, 8), (1, 0)])
    world = make(Alternating(2, 1.0, np.array([1])), "pause", up=dead_by_turns)
    with pytest.raises(OffbeatError, match=r"client 0 goes offline 1,000 times.*began at 3 virtual.*population\.avail"):
        world.upload(0, 3.0, 8.0)
    assert make(Alternating(2, 1.0, np.array([0])), "pause", up=dead_by_turns).upload(0, 3.0, 16.0) == (7.0, 0.0)


def test_an_availability_that_does_not_know_the_time_is_an_error():
    class Lost:
        def next_available(self, client, seconds):
            return math.nan

        next_offline = next_available

    with pytest.raises(OffbeatError, match=r"^population\.availability: next_available\(0, 3\) is not a number$"):
        make(Lost(), "pause").upload(0, 3.0, 8.0)


def test_a_remainder_of_rounding_does_not_wait_until_the_client_is_back(intervals):
    world = make(intervals([(0.7, 1.0), (50.0, 60.0)]), "pause")
    assert world.upload(0, 0.7, (1.0 - 0.7) * (1 + 1e-14)) == (1.0, 0.0)
    assert world.upload(0, 0.7, 0.4)[0] == pytest.approx(50.1)


LENGTH = 4
TARGETS = torch.tensor([[0.0, 10.0, -4.0, 3.0]])
TOP_1 = Compression("top_k", (("share", 0.25),))


def test_bytes_are_those_of_all_transfers(simulate):
    simulation = simulate(one_by_one(4))
    last = run(simulation)[-1]
    assert last.bytes_up == 8 * last.counted
    assert last.bytes_down == 8 * (last.counted + 4)  # four are still at work


@pytest.mark.parametrize("compression", [None, TOP_1], ids=["whole", "compressed"])
def test_an_upload_takes_the_bytes_and_the_time_of_its_compressed_form(simulate, compression):
    # A header of 16 bytes, the share of 8, a bitmap of 1, one value of 4; or 4 values.
    size = 29 if compression else 16
    simulation = simulate(
        step_seconds=(1.0,),
        down=2.0,
        up=1.0,
        length=LENGTH,
        trainer=QuadraticTrainer(TARGETS),
        plan=local_plan(compression=compression),
        stop=Stop(updates=3),
    )
    last = run(simulation)[-1]
    # 8 s down, 1 s of work, as many seconds up as there are bytes.
    assert visits_of(simulation, "ended_seconds") == [k * (8 + 1 + size) for k in (1, 2, 3)]
    assert visits_of(simulation, "bytes_down", "bytes_up") == [(16, size)] * 3
    assert (last.bytes_up, last.bytes_down) == (3 * size, 48)
    if compression:
        assert size == len(top_k(share=0.25).encode(torch.ones(LENGTH), 0).to_bytes())


def test_an_upload_that_breaks_off_counts_the_bytes_sent_until_then(simulate, intervals):
    simulation = simulate(
        step_seconds=(1.0,),
        up=1.0,
        length=LENGTH,
        trainer=QuadraticTrainer(TARGETS),
        plan=local_plan(compression=TOP_1),
        availability=intervals([(0, 10.5)]),
        when_away="lose",
    )
    last = run(simulation)[-1]
    # From 1 s to 10.5 s nine bytes are through, and half of the tenth.
    assert visits_of(simulation, "outcome", "ended_seconds", "bytes_up") == [("lost", 10.5, 9)]
    assert last.bytes_up == 9


def test_the_normaliser_is_that_of_each_plan_in_turn():
    costs = PlanCosts(FedBuff(), length=2)
    short, long = local_plan(3), local_plan(5)
    assert [costs.normaliser(plan) for plan in (short, short, long, short)] == [3, 3, 5, 3]


@pytest.mark.parametrize(
    ("algorithm", "down", "model"), [(FedBuff(), 20, 20), (SCAFFOLD(), 40, 20), (SequentialSGD(), 0, 0)]
)
def test_the_bytes_of_a_model_and_of_a_download(algorithm, down, model):
    costs = PlanCosts(algorithm, length=5)
    assert (costs.down_bytes, costs.model_bytes) == (down, model)
    assert costs.upload_bytes(local_plan()) == model
