"""Bytes on the wire, and normalisers."""

import pytest
import torch

from offbeat.algorithms import SCAFFOLD, FedBuff, LocalPlan, SequentialSGD
from offbeat.algorithms.components import Compression
from offbeat.compression import top_k
from offbeat.simulation.plan_costs import PlanCosts
from offbeat.simulation.records import Stop
from tests.simulation.conftest import run

N = 5


LENGTH = 4


TARGETS = torch.arange(float(N))[:, None] + torch.tensor([0.0, 10.0, -4.0, 3.0])


TOP_1 = Compression("top_k", (("share", 0.25),))


def plan(compression=None, error_feedback=False):
    return LocalPlan(steps=1, batch_size=1, lr=0.5, compression=compression, error_feedback=error_feedback)


def test_bytes_are_those_of_all_transfers(simulate):
    simulation = simulate(FedBuff(buffer_size=1, concurrency=4), stop=Stop(virtual_seconds=20.0))
    last = run(simulation)[-1]
    assert last.bytes_up == 8 * last.counted
    assert last.bytes_down == 8 * (last.counted + 4)  # four are still at work


@pytest.mark.parametrize("compression", [None, TOP_1], ids=["whole", "compressed"])
def test_the_bytes_of_an_upload_and_its_time_are_those_of_what_is_sent(simulate, compression):
    # A header of 16 bytes, the share of 8, a bitmap of 1, one value of 4; or 4 values.
    size = 29 if compression else 16
    simulation = simulate(
        FedBuff(buffer_size=1, concurrency=1),
        step_seconds=(1.0,),
        down=2.0,
        up=1.0,
        length=LENGTH,
        trainer=simulate.trainer(TARGETS),
        plan=plan(compression),
        stop=Stop(updates=3),
    )
    last = list(simulation.run())[-1]
    # 8 s down, 1 s of work, as many seconds up as there are bytes.
    assert [visit.ended_seconds for visit in simulation.ended] == [k * (8 + 1 + size) for k in (1, 2, 3)]
    assert {(visit.bytes_down, visit.bytes_up) for visit in simulation.ended} == {(16, size)}
    assert last.bytes_up == 3 * size
    assert last.bytes_down == 48
    if compression:
        assert size == len(top_k(share=0.25).encode(torch.ones(LENGTH), 0).to_bytes())


def test_of_a_compressed_upload_that_breaks_off_the_bytes_sent_until_then_count(simulate, intervals):
    simulation = simulate(
        FedBuff(buffer_size=1, concurrency=1),
        step_seconds=(1.0,),
        down=1e300,
        up=1.0,
        length=LENGTH,
        trainer=simulate.trainer(TARGETS),
        plan=plan(TOP_1),
        availability=intervals([(0, 10.5)]),
        when_away="lose",
        stop=Stop(virtual_seconds=50.0),
    )
    last = list(simulation.run())[-1]
    # From 1 s to 10.5 s nine bytes are through, and half of the tenth.
    assert [(visit.outcome, visit.ended_seconds, visit.bytes_up) for visit in simulation.ended] == [("lost", 10.5, 9)]
    assert last.bytes_up == 9


def test_the_normaliser_is_that_of_each_plan_in_turn():
    costs = PlanCosts(FedBuff(), length=2)
    short, long = (LocalPlan(steps=steps, batch_size=1, lr=0.1) for steps in (3, 5))
    assert [costs.normaliser(plan) for plan in (short, short, long, short)] == [3, 3, 5, 3]


@pytest.mark.parametrize(
    ("algorithm", "down", "model"), [(FedBuff(), 20, 20), (SCAFFOLD(), 40, 20), (SequentialSGD(), 0, 0)]
)
def test_the_bytes_of_a_model_and_of_a_download(algorithm, down, model):
    costs = PlanCosts(algorithm, length=5)
    assert (costs.down_bytes, costs.model_bytes) == (down, model)
    assert costs.upload_bytes(LocalPlan(steps=1, batch_size=1, lr=0.1)) == model
