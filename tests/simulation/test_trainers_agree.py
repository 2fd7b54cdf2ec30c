"""A run is the same with any trainer and any interruption.

With one trainer its models are bit-equal, with another equal up to rounding.
"""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy

from offbeat.algorithms import FedAsync, FedAvg, FedBuff, FedFa, FedLaAvg, LocalPlan, Port
from offbeat.simulation.totals import Stop
from offbeat.training.flat_model import FlatModel
from offbeat.training.trainers.batched.vmap import VmapBackend
from offbeat.training.trainers.distributed.process_pool import ProcessPool
from offbeat.training.trainers.loop import LoopBackend
from offbeat.training.trainers.trainer import Trainer
from tests.effort import cases
from tests.simulation.conftest import times_of
from tests.workloads import workload_of

SIZES = (4, 9, 2, 13, 6)  # examples a client
ALGORITHMS = {
    "fedavg": lambda: FedAvg(cohort=2, over_selection=1.5),
    "fedasync": lambda: FedAsync(concurrency=3),
    "fedbuff": lambda: FedBuff(buffer_size=2, concurrency=4),
    "fedfa": lambda: FedFa(window=3, concurrency=3),
    "fedlaavg": lambda: FedLaAvg(cohort=2),
    "port": lambda: Port(min_clients=2, staleness_bound=1, concurrency=4),
}
COMINGS = st.lists(st.tuples(st.integers(1, 4), st.integers(2, 9)), min_size=3, max_size=5)


@pytest.fixture(scope="module")
def parts():
    random = np.random.default_rng(3)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        model = FlatModel(nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Dropout(0.2), nn.Linear(5, 4)))
    return {
        "model": model,
        "loss": cross_entropy,
        "inputs": torch.from_numpy(random.normal(size=(sum(SIZES), 3)).astype(np.float32)),
        "labels": torch.from_numpy(random.integers(4, size=sum(SIZES))),
        "shards": np.split(random.permutation(sum(SIZES)), np.cumsum(SIZES)[:-1]),
        "seed": 5,
    }


@pytest.fixture(scope="module")
def initial(parts):
    """The model before training, in whose place the trainers put others."""
    return parts["model"].vector.clone()


@pytest.fixture(scope="module")
def processes(parts, forked_workers):
    """Trainers of one and two processes, which serve all runs."""
    trainers = [Trainer(ProcessPool(workload_of(**parts), workers=workers)) for workers in (1, 2)]
    yield trainers
    for trainer in trainers:
        trainer.close()


@settings(max_examples=cases(9))
@given(
    name=st.sampled_from(sorted(ALGORITHMS)),
    comings=st.none() | st.lists(COMINGS, min_size=len(SIZES), max_size=len(SIZES)),
    when_away=st.sampled_from(["pause", "lose"]),
    step_seconds=st.lists(st.sampled_from([0.5, 1.0, 1.5, 4.0]), min_size=len(SIZES), max_size=len(SIZES)),
    lossy=st.booleans(),
    plan=st.builds(
        LocalPlan,
        steps=st.integers(1, 4),
        batch_size=st.integers(1, 6),
        lr=st.sampled_from([0.05, 0.3]),
        momentum=st.sampled_from([0.0, 0.5]),
        clip_norm=st.sampled_from([None, 0.7]),
    ),
    limits=st.lists(st.integers(1, 12), min_size=2, max_size=2),
    workers=st.integers(0, 1),
    interruption=st.integers(0, 40),
)
def test_any_schedule_any_batch_any_workers_interrupted_or_not(
    parts, initial, processes, simulate, intervals, name, comings, when_away, step_seconds, lossy, plan, limits,
    workers, interruption,
):  # fmt: skip
    def world(trainer):
        return simulate(
            ALGORITHMS[name](),
            step_seconds=step_seconds,
            down=400.0,
            up=300.0,
            loss_probability=(0.5, 0.0, 0.0, 0.5, 0.0) if lossy else None,
            availability=intervals(*map(times_of, comings)) if comings else None,
            when_away=when_away,
            lease_seconds=12.0,
            stop=Stop(virtual_seconds=30.0),
            plan=plan,
            trainer=trainer,
            model=initial,
            seed=5,
        )

    def outcome(trainer, interruption=None, other=None):
        simulation = world(trainer)
        evaluations, ended = [], []
        steps = 0
        while not simulation.finished:
            if steps == interruption:
                state, (simulation, before) = simulation.state_dict(), (world(other), simulation)
                ended += before.ended
                simulation.load_state_dict(state)
            if (evaluation := simulation.step()) is not None:
                evaluations.append(evaluation)
            steps += 1
        return ended + simulation.ended, evaluations, simulation.model

    loop = Trainer(LoopBackend(workload_of(**parts)))
    one, other = (Trainer(VmapBackend(workload_of(**parts), batch_limit=limit)) for limit in limits)
    expected = outcome(loop)
    batched = outcome(one)
    same(outcome(loop, interruption, processes[workers]), expected)
    same(outcome(other, interruption, one), batched)
    assert batched[0] == expected[0]
    assert [each[:7] for each in batched[1]] == [each[:7] for each in expected[1]]
    assert (batched[2] - expected[2]).abs().max() < 1e-4


def same(found, expected):
    assert found[0] == expected[0]
    assert found[1] == expected[1]
    assert torch.equal(found[2], expected[2])
