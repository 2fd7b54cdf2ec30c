"""A run that is saved and restored after any of its steps goes on to the same end."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from offbeat.algorithms import AsyncCommSGD, FedAsync, FedAvg, FedBuff, FedLaAvg, FedLuck, Port
from offbeat.algorithms.components import Compression
from offbeat.algorithms.components.schedules.patterns import random
from offbeat.algorithms.components.weights import inverse_time
from offbeat.simulation.simulator import Simulation
from offbeat.simulation.totals import Evaluation, Stop
from offbeat.simulation.training_queue import DivergedError
from tests.algorithms.case import by_parts, first_of_each
from tests.simulation.conftest import TIMES, QuadraticTrainer, local_plan, resume, run


class BufferThatNeedsBases(FedBuff):
    """Its updates carry the model that they started from, and it has a clock."""

    needs_base = True
    period = 7.0

    def receive(self, update):
        assert update.base is not None
        return super().receive(update._replace(vector=update.vector.resolve() + 0.01 * update.base))


RANDOM_HALF = Compression("random_k", (("share", 0.5), ("scaled", False)))
TOP_HALF = Compression("top_k", (("share", 0.5),))
# Algorithms, and the differences of their worlds; cases of the contract are in a test of their own.
WORLDS = {
    "fedavg": (lambda: FedAvg(cohort=2, over_selection=1.5), {}),
    "fedasync": (lambda: FedAsync(concurrency=3), {}),
    "fedbuff": (lambda: FedBuff(buffer_size=2, concurrency=3), {}),
    "with base": (lambda: BufferThatNeedsBases(buffer_size=2, concurrency=3), {}),
    "fedbuff with error feedback": (
        lambda: FedBuff(buffer_size=2, concurrency=3),
        {"plan": local_plan(compression=RANDOM_HALF, error_feedback=True), "up": 20.0},
    ),
    "fedlaavg": (lambda: FedLaAvg(cohort=2), {}),
    "fedlaavg compressed": (lambda: FedLaAvg(cohort=2), {"plan": local_plan(compression=RANDOM_HALF), "up": 20.0}),
    "port": (
        lambda: Port(min_clients=1, staleness_bound=1, concurrency=3),
        {"plan": local_plan(3), "max_staleness": None},
    ),
    "async_comm_sgd": (
        lambda: AsyncCommSGD(pattern=random(0.4), step_sizes=inverse_time(), average=True, period=1.7),
        {"max_staleness": None},
    ),
    "fedluck with error feedback": (
        lambda: FedLuck(period=1.3, steps=(1, 3), compression=(0.5, 1.0)),
        {"plan": local_plan(compression=TOP_HALF, error_feedback=True), "max_staleness": None, "up": 20.0},
    ),
}
REMEMBERING = {name for name in WORLDS if name.startswith("fedlaavg") or name.endswith("feedback")}
PLAIN = ("fedavg", "fedasync", "fedbuff", "with base")
CASES = first_of_each(by_parts)


@pytest.fixture
def world(simulate, intervals):
    def build(name, when_away="lose", batch_limit=1, **more):
        algorithm, differences = WORLDS[name]
        arguments = {
            "step_seconds": (1.0, 1.5, 2.0, 4.0),
            "down": 16.0,
            "up": 6.0,
            "loss_probability": (0.0, 0.5, 0.0, 0.5),
            "availability": intervals(*TIMES),
            "when_away": when_away,
            "lease_seconds": 5.0,
            "max_staleness": 1,
            "trainer": QuadraticTrainer(torch.arange(4.0)[:, None] + torch.tensor([0.0, 10.0]), batch_limit),
            "every": 2.3,
            "stop": Stop(virtual_seconds=24.0),
        }
        return simulate(algorithm(), **arguments | differences | more)

    return build


@pytest.fixture
def case_world(simulate, intervals):
    def build(case):
        arguments = {
            "step_seconds": (1.0, 1.5, 2.0, 4.0, 0.7, 0.4),
            "down": 16.0,
            "up": 6.0,
            "loss_probability": (0.0, 0.5, 0.0, 0.5, 0.0, 0.0),
            "availability": intervals(*TIMES, [(2, 5), (6, 9), (10, 13), (14, 30)], [(0, 30)]),
            "when_away": "lose",
            "lease_seconds": 5.0,
        }
        if case.clients == 1:  # all data are in one place
            arguments = {"step_seconds": (0.25,), "down": 1.0, "up": 1.0}
        return simulate(case.make(), every=2.3, stop=Stop(virtual_seconds=24.0), **arguments)

    return build


def outcome(simulation):
    """All of the state but the visits, where an upload stands for a starting model once it is trained."""
    return {key: value for key, value in simulation.state_dict().items() if not key.startswith("visits.")}


@pytest.mark.parametrize(("when_away", "batch_limit"), [("pause", 4), ("lose", 1)])
@pytest.mark.parametrize("name", WORLDS)
def test_a_run_resumes_from_every_third_step_to_the_same_end(name, when_away, batch_limit, world, same_state):
    undisturbed = world(name, when_away, batch_limit)
    evaluations = run(undisturbed)
    if name in PLAIN:
        assert {visit.outcome for visit in undisturbed.ended} >= {"counted", "lost"}
        assert when_away == "lose" or undisturbed.coordinator.statistics.unused > 0

    saved = world(name, when_away, batch_limit)
    made = []
    cut_short = remembered = step = 0
    while not saved.finished:
        state = saved.state_dict()
        if step % 3 == 0:
            restored = world(name, when_away, batch_limit)
            restored.load_state_dict(state)
            remembered += len(restored._stages.training._memories)
            cut_short += any(visit.plan is not visit.assignment.plan for visit in restored._stages.visits.values())
            assert made + run(restored) == evaluations
            assert saved.ended + restored.ended == undisturbed.ended
            assert torch.equal(restored.model, undisturbed.model)
        evaluation = saved.step()
        made += [] if evaluation is None else [evaluation]
        step += 1
    # Saving at every step does not change the run.
    assert made == evaluations
    assert saved.ended == undisturbed.ended
    assert same_state(outcome(saved), outcome(undisturbed))
    assert same_state(outcome(restored), outcome(undisturbed))
    assert (cut_short > 0) is (name == "port")
    assert (remembered > 0) is (name in REMEMBERING)


class StatefulTrainer(QuadraticTrainer):
    """A client's n-th update that counts is divided by n."""

    keeps_states = True

    def collect(self, jobs):
        counts = [int(job.state or b"0") + 1 for job in jobs]
        return [
            replace(result, vector=result.vector / count, state=b"%d" % count, examples=count)
            for count, result in zip(counts, super().collect(jobs), strict=True)
        ]


@pytest.mark.parametrize("name", ["fedbuff", "fedlaavg"])
def test_a_run_with_clients_states_resumes_from_every_step(name, world, tmp_path):
    def make():
        return world(name, trainer=StatefulTrainer(torch.arange(4.0)[:, None] + torch.tensor([0.0, 10.0])))

    undisturbed, saved, made = make(), make(), []
    evaluations = run(undisturbed)
    assert {memory.state for memory in undisturbed._stages.training._memories.values()} > {b"2"}
    while not saved.finished:
        restored = resume(make(), saved, tmp_path)
        assert made + run(restored) == evaluations
        assert torch.equal(restored.model, undisturbed.model)
        evaluation = saved.step()
        made += [] if evaluation is None else [evaluation]


@pytest.mark.parametrize("name", CASES)
def test_every_algorithm_resumes_from_a_file(name, case_world, same_state, tmp_path):
    undisturbed, saved = case_world(CASES[name]), case_world(CASES[name])
    evaluations, made = run(undisturbed), []
    assert undisturbed.coordinator.statistics.counted > 5
    assert undisturbed.coordinator.algorithm.version > 1
    step = 0
    while not saved.finished:
        if step % 7 == 0:
            restored = resume(case_world(CASES[name]), saved, tmp_path)
            restored.ended = [*saved.ended]
            saved = restored
        evaluation = saved.step()
        made += [] if evaluation is None else [evaluation]
        step += 1
    assert made == evaluations
    assert saved.ended == undisturbed.ended
    assert same_state(outcome(saved), outcome(undisturbed))


def test_infinities_stay_infinite(world, tmp_path):
    # Without leases; clients 0 and 1 are at work when they leave for good, as is client 3 in the end.
    arguments = {"lease_seconds": math.inf, "when_away": "pause", "loss_probability": None, "every": 5.0}
    saved = world("fedbuff", stop=Stop(virtual_seconds=60.0), **arguments)
    while saved._now < 40:
        saved.step()
    restored = resume(world("fedbuff", stop=Stop(virtual_seconds=60.0), **arguments), saved, tmp_path)
    assert len(restored._stages.visits) == len(saved._stages.visits) == 3
    assert {visit.assignment.lease_until for visit in restored._stages.visits.values()} == {math.inf}
    assert type(restored._evaluations._latest) is Evaluation
    assert restored._evaluations._latest == saved._evaluations._latest
    assert run(restored) == run(saved)


def test_a_saved_state_does_not_change_as_the_run_goes_on(world):
    def frozen():
        return json.dumps({k: v.tolist() if isinstance(v, torch.Tensor) else v for k, v in state.items()})

    simulation = world("fedavg")
    for _ in range(40):
        simulation.step()
    state = simulation.state_dict()
    before = frozen()
    run(simulation)
    assert frozen() == before


@pytest.mark.parametrize("stop", [Stop(virtual_seconds=11.0), Stop(versions=3), Stop(updates=3)])
def test_a_finished_run_stays_finished_without_a_second_evaluation(world, stop):
    simulation, restored = world("fedbuff", stop=stop), world("fedbuff", stop=stop)
    run(simulation)
    restored.load_state_dict(simulation.state_dict())
    assert run(restored) == []


def test_a_restored_run_knows_how_long_no_update_has_counted(simulate, monkeypatch):
    monkeypatch.setattr("offbeat.simulation.clock._MAX_IN_VAIN", 20)
    simulation, restored = (
        simulate(FedAvg(cohort=1), step_seconds=(1.0,), lease_seconds=0.5, stop=Stop(versions=1)) for _ in range(2)
    )
    while len(simulation.ended) < 15:
        simulation.step()
    restored.load_state_dict(simulation.state_dict())
    with pytest.raises(Exception, match="no update counted in the last 21 visits"):
        run(restored)
    assert len(restored.ended) == 5


def test_training_that_diverged_before_it_was_needed_does_so_again_after_a_restart(world):
    def build():
        trainer = QuadraticTrainer(torch.zeros(4, 2), 4, lambda job: job.client == 3)
        return world("fedasync", "pause", trainer=trainer, loss_probability=None, max_staleness=9)

    simulation, restored = build(), build()
    # The evaluation at 4.6 s has trained client 3's work along with that of others.
    while simulation._now < 4.6:
        simulation.step()
    assert simulation._stages.visits[3].upload.error is not None
    restored.load_state_dict(simulation.state_dict())
    for each in (simulation, restored):
        with pytest.raises(DivergedError, match="client 3, from version 0"):
            run(each)
    assert restored._now == simulation._now


def test_a_loaded_state_lies_where_the_model_lies():
    algorithm = SimpleNamespace(model=torch.zeros(2, device="meta"))
    world = SimpleNamespace(coordinator=SimpleNamespace(algorithm=algorithm))
    state = {"sum": torch.zeros(2), "rows": torch.zeros(3, 2), "clients": torch.arange(3), "now": 1.0}
    moved = Simulation._on_device(world, state)
    assert {key: value.device.type for key, value in moved.items() if torch.is_tensor(value)} == {
        "sum": "meta",
        "rows": "meta",
        "clients": "cpu",
    }
    assert moved["now"] == 1.0
