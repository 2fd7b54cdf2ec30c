"""Bytes on the wire, and normalisers."""

import pytest
import torch

from offbeat.algorithms import SCAFFOLD, FedBuff, SequentialSGD
from offbeat.algorithms.components import Compression
from offbeat.compression import top_k
from offbeat.simulation.plan_costs import PlanCosts
from offbeat.simulation.records import Stop
from tests.simulation.conftest import QuadraticTrainer, local_plan, one_by_one, run, visits_of

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
