"""Sequential SGD: one machine with all the data, to and from which nothing travels."""

import pytest
import torch

from offbeat.algorithms import LocalPlan, SequentialSGD
from offbeat.simulation.records import Stop


@pytest.mark.parametrize("speed", [1e-3, 1.0, 1e300])
def test_a_round_is_the_steps_of_a_cohort_and_nothing_else(simulate, speed):
    simulation = simulate(
        SequentialSGD(cohort=3),
        step_seconds=(0.5,),
        down=speed,
        up=speed,
        plan=LocalPlan(steps=2, batch_size=1, lr=0.5),
        stop=Stop(versions=3),
        trainer=simulate.trainer(torch.tensor([[1.0, 10.0]])),
        every=3.0,
    )
    evaluations = list(simulation.run())
    # Six steps of half a second; each of them goes half of the way to the target.
    assert [(visit.assigned_seconds, visit.ended_seconds) for visit in simulation.ended] == [(0, 3), (3, 6), (6, 9)]
    assert [(visit.version, visit.staleness) for visit in simulation.ended] == [(0, 0), (1, 0), (2, 0)]
    assert {(visit.bytes_down, visit.bytes_up, visit.outcome) for visit in simulation.ended} == {(0, 0, "counted")}
    assert [(e.bytes_down, e.bytes_up) for e in evaluations] == [(0, 0)] * 4
    assert [e.metrics["accuracy"] for e in evaluations] == pytest.approx([1 - 0.5 ** (6 * n) for n in range(4)])
    torch.testing.assert_close(simulation.model, torch.tensor([1.0, 10.0]) * (1 - 0.5**18))
