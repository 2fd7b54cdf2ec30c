"""A run that is saved and restored after any of its steps goes on as if nothing had been."""

import json
import math

import pytest
import torch

from offbeat.algorithms import (
    AsyncCommSGD,
    FedAsync,
    FedAvg,
    FedBuff,
    FedLaAvg,
    FedLuck,
    LocalPlan,
    Port,
    SequentialSGD,
)
from offbeat.algorithms.components import Compression
from offbeat.algorithms.components.schedules.patterns import random
from offbeat.algorithms.components.step_sizes import inverse_time
from offbeat.checkpoint import read_checkpoint, write_checkpoint
from offbeat.simulation.events import Kind
from offbeat.simulation.records import Evaluation, Stop
from offbeat.simulation.training_queue import DivergedError
from offbeat.training.trainers.trainer import Result


class BufferThatNeedsBases(FedBuff):
    """Its updates carry the model that they started from, and it has a clock."""

    needs_base = True
    period = 7.0

    def receive(self, update):
        assert update.base is not None
        return super().receive(update._replace(vector=update.vector.resolve() + 0.01 * update.base))


ALGORITHMS = {
    "fedavg": lambda: FedAvg(cohort=2, over_selection=1.5),
    "fedasync": lambda: FedAsync(concurrency=3),
    "fedbuff": lambda: FedBuff(buffer_size=2, concurrency=3),
    "with base": lambda: BufferThatNeedsBases(buffer_size=2, concurrency=3),
    "fedbuff with error feedback": lambda: FedBuff(buffer_size=2, concurrency=3),
    "fedlaavg": lambda: FedLaAvg(cohort=2),
    "fedlaavg compressed": lambda: FedLaAvg(cohort=2),
    "fedlaavg keeping updates": lambda: FedLaAvg(cohort=2, server_keeps_updates=True),
    "port": lambda: Port(min_clients=1, staleness_bound=1, concurrency=3),
    "async_comm_sgd": lambda: AsyncCommSGD(pattern=random(0.4), step_sizes=inverse_time(), average=True, period=1.7),
    "fedluck": lambda: FedLuck(period=1.3, steps=(1, 3), compression=(0.5, 1.0)),
    "fedluck with error feedback": lambda: FedLuck(period=1.3, steps=(1, 3), compression=(0.5, 1.0)),
    "sequential_sgd": lambda: SequentialSGD(cohort=3),
}
HALF = Compression("random_k", (("share", 0.5), ("scaled", False)))
TOP_HALF = Compression("top_k", (("share", 0.5),))
# What is different in their worlds. All contract cases are in test_every_algorithm_resumes.py.
WORLDS = {
    "fedbuff with error feedback": {
        "plan": LocalPlan(steps=1, batch_size=1, lr=0.5, compression=HALF, error_feedback=True),
        "up": 20.0,
    },
    "fedlaavg compressed": {"plan": LocalPlan(steps=1, batch_size=1, lr=0.5, compression=HALF), "up": 20.0},
    "port": {"plan": LocalPlan(steps=3, batch_size=1, lr=0.5), "max_staleness": None},
    "async_comm_sgd": {"max_staleness": None},
    "fedluck": {"max_staleness": None},
    "fedluck with error feedback": {
        "max_staleness": None,
        "plan": LocalPlan(steps=1, batch_size=1, lr=0.5, compression=TOP_HALF, error_feedback=True),
        "up": 20.0,
    },
    "sequential_sgd": {"step_seconds": (0.25,), "loss_probability": None, "availability": None, "down": 1.0, "up": 1.0},
}
REMEMBERING = {name for name in ALGORITHMS if name.startswith("fedlaavg") or name.endswith("feedback")}
PLAIN = {name for name in ALGORITHMS if name not in WORLDS and name not in REMEMBERING}
TIMES = [
    [(0, 4.5), (6, 30)],
    [(0, 2), (2.25, 5), (7, 9), (11, 30)],
    [(1, 12), (14, 18)],
    [(0, 30)],
]


@pytest.fixture
def world(simulate, intervals):
    def build(name, when_away="lose", batch_limit=1, **more):
        targets = torch.arange(4.0)[:, None] + torch.tensor([0.0, 10.0])
        arguments = {
            "step_seconds": (1.0, 1.5, 2.0, 4.0),
            "down": 16.0,
            "up": 6.0,
            "loss_probability": (0.0, 0.5, 0.0, 0.5),
            "availability": intervals(*TIMES),
            "when_away": when_away,
            "lease_seconds": 5.0,
            "max_staleness": 1,
            "trainer": simulate.trainer(targets, batch_limit),
            "every": 2.3,
            "stop": Stop(virtual_seconds=24.0),
        }
        return simulate(ALGORITHMS[name](), **arguments | WORLDS.get(name, {}) | more)

    return build


def to_the_end(simulation):
    return list(simulation.run())


def outcome(simulation):
    """All of the state but the visits, where an upload stands for a starting model once it is trained."""
    return {key: value for key, value in simulation.state_dict().items() if not key.startswith("visits.")}


@pytest.mark.parametrize("batch_limit", [1, 4])
@pytest.mark.parametrize("when_away", ["pause", "lose"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_run_goes_on_from_every_step_to_the_same_end(name, when_away, batch_limit, world, same_state):
    undisturbed = world(name, when_away, batch_limit)
    evaluations = to_the_end(undisturbed)
    if name in PLAIN:
        assert {visit.outcome for visit in undisturbed.ended} >= {"counted", "lost"}
        assert when_away == "lose" or undisturbed.coordinator.statistics.unused > 0

    saved = world(name, when_away, batch_limit)
    made = []
    cut_short = remembered = 0
    for step in range(10_000):
        if saved.finished:
            break
        state = saved.state_dict()
        if name in PLAIN or step % 3 == 0:
            restored = world(name, when_away, batch_limit)
            restored.load_state_dict(state)
            remembered += len(restored._life.work._memories)
            cut_short += any(visit.plan is not visit.assignment.plan for visit in restored._life.visits.values())
            assert made + to_the_end(restored) == evaluations
            assert saved.ended + restored.ended == undisturbed.ended
            assert torch.equal(restored.model, undisturbed.model)
        evaluation = saved.step()
        made += [] if evaluation is None else [evaluation]
    # Saved at every step, and none the worse for it.
    assert made == evaluations
    assert saved.ended == undisturbed.ended
    assert same_state(outcome(saved), outcome(undisturbed))
    assert same_state(outcome(restored), outcome(undisturbed))
    assert (cut_short > 0) is (name == "port")
    assert (remembered > 0) is (name in REMEMBERING)


@pytest.mark.parametrize("when_away", ["pause", "lose"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_run_goes_on_from_a_file(name, when_away, world, same_state, tmp_path):
    undisturbed, saved = world(name, when_away), world(name, when_away)
    evaluations, made = to_the_end(undisturbed), []
    for step in range(1000):
        if saved.finished:
            break
        if step % 7 == 0:
            write_checkpoint(tmp_path / "checkpoint", saved.state_dict())
            restored = world(name, when_away)
            restored.load_state_dict(read_checkpoint(tmp_path / "checkpoint"))
            ended = [*saved.ended]
            saved = restored
            saved.ended = ended
        evaluation = saved.step()
        made += [] if evaluation is None else [evaluation]
    assert made == evaluations
    assert saved.ended == undisturbed.ended
    assert same_state(outcome(saved), outcome(undisturbed))


def test_infinities_stay_infinite(world, tmp_path):
    # Without leases; clients 0 and 1 are at work when they leave for good, as is client 3 in the end.
    arguments = {"lease_seconds": math.inf, "when_away": "pause", "loss_probability": None, "every": 5.0}
    saved = world("fedbuff", stop=Stop(virtual_seconds=60.0), **arguments)
    while saved._now < 40:
        saved.step()
    write_checkpoint(tmp_path / "checkpoint", saved.state_dict())
    restored = world("fedbuff", stop=Stop(virtual_seconds=60.0), **arguments)
    restored.load_state_dict(read_checkpoint(tmp_path / "checkpoint"))
    assert len(restored._life.visits) == len(saved._life.visits) == 3
    assert {visit.assignment.lease_until for visit in restored._life.visits.values()} == {math.inf}
    assert to_the_end(restored) == to_the_end(saved)


def test_what_is_saved_does_not_change_as_the_run_goes_on(world):
    simulation = world("fedavg")
    for _ in range(40):
        simulation.step()
    state = simulation.state_dict()
    before = frozen(state)
    to_the_end(simulation)
    assert frozen(state) == before


def frozen(state):
    """A copy of a state, as text."""
    plain = {key: value.tolist() if isinstance(value, torch.Tensor) else value for key, value in state.items()}
    return json.dumps(plain)


def test_a_finished_run_is_finished_after_a_restart_without_a_second_evaluation(world):
    for stop in (Stop(virtual_seconds=11.0), Stop(versions=3), Stop(updates=3)):
        simulation, restored = world("fedbuff", stop=stop), world("fedbuff", stop=stop)
        to_the_end(simulation)
        restored.load_state_dict(simulation.state_dict())
        assert to_the_end(restored) == []


def test_a_restored_run_knows_how_long_it_has_been_in_vain(simulate, monkeypatch):
    monkeypatch.setattr("offbeat.simulation.stall_guard._MAX_IN_VAIN", 20)

    def build():
        return simulate(FedAvg(cohort=1), step_seconds=(1.0,), lease_seconds=0.5, stop=Stop(versions=1))

    simulation = build()
    while len(simulation.ended) < 15:
        simulation.step()
    restored = build()
    restored.load_state_dict(simulation.state_dict())
    with pytest.raises(Exception, match="no update counted in the last 21 visits"):
        to_the_end(restored)
    assert len(restored.ended) == 5


def test_training_that_diverged_unneeded_does_so_again_after_a_restart(world, simulate):
    class Diverging(simulate.trainer):
        def collect(self, jobs):
            nan = Result(torch.full((2,), float("nan")), 0.0)
            return [nan if job.client == 3 else r for job, r in zip(jobs, super().collect(jobs), strict=True)]

    def build():
        return world(
            "fedasync", "pause", trainer=Diverging(torch.zeros(4, 2), 4), loss_probability=None, max_staleness=9
        )

    simulation = build()
    # The evaluation at 4.6 s has trained client 3's work along with that of others.
    while simulation._now < 4.6:
        simulation.step()
    assert simulation._life.visits[3].work.error is not None
    restored = build()
    restored.load_state_dict(simulation.state_dict())
    for each in (simulation, restored):
        with pytest.raises(DivergedError, match="client 3, from version 0"):
            to_the_end(each)
    assert restored._now == simulation._now


def test_an_evaluation_comes_back_as_one(world, tmp_path):
    simulation, restored = world("fedavg"), world("fedavg")
    simulation.step()  # everybody is there
    while simulation._queue._heap[0][1] != Kind.EVALUATION:
        simulation.step()
    first = simulation.step()
    write_checkpoint(tmp_path / "checkpoint", simulation.state_dict())
    restored.load_state_dict(read_checkpoint(tmp_path / "checkpoint"))
    assert type(restored._evaluations._latest) is Evaluation
    assert restored._evaluations._latest == first
    assert first.metrics == {"accuracy": 0.0}
