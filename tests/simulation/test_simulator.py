"""The event loop: plain asynchronous SGD, the end of a run, and what a run depends on."""

import heapq
import subprocess
import sys

import pytest
import torch

from offbeat.algorithms import FedAsync, FedAvg, FedBuff, SequentialSGD
from offbeat.algorithms.components.weights import constant
from offbeat.coordinator import Coordinator
from offbeat.simulation.totals import Stop
from tests.simulation.conftest import QuadraticTrainer, ended, local_plan, one_by_one, run, visits_of

ALGORITHMS = {
    "fedavg": lambda: FedAvg(cohort=2, over_selection=1.5),
    "fedasync": lambda: FedAsync(concurrency=3),
    "fedbuff": lambda: FedBuff(buffer_size=2, concurrency=3),
}
LOSSY = {"loss_probability": (0.0, 0.5, 0.0, 0.5), "lease_seconds": 6.0, "stop": Stop(virtual_seconds=60)}
TARGETS = torch.arange(4.0)[:, None] + torch.tensor([0.0, 10.0])


def test_updates_that_arrive_together_all_count_before_work_is_given_out(simulate):
    algorithm = FedBuff(buffer_size=4, concurrency=4)
    simulation = simulate(algorithm, step_seconds=(1.0,) * 4, stop=Stop(versions=2))
    assert ended(simulation, "version", "staleness") == [(0, 0)] * 4 + [(1, 0)] * 4


def test_plain_asynchronous_sgd_equals_a_few_lines_of_it(simulate):
    """FedBuff with K = 1 and constant weights: every client at work, each delta subtracted as it arrives."""
    step_seconds, model = (1.0, 1.7312, 2.3178, 0.6453), torch.zeros(2)
    algorithm = one_by_one(4, staleness=constant())
    simulation = simulate(algorithm, step_seconds=step_seconds, stop=Stop(updates=30))
    run(simulation)

    arrivals = [(seconds, client, model) for client, seconds in enumerate(step_seconds)]
    heapq.heapify(arrivals)
    for _ in range(30):
        now, client, start = heapq.heappop(arrivals)
        model = model - (start - (start - 0.5 * (start - TARGETS[client])))
        heapq.heappush(arrivals, (now + step_seconds[client], client, model))
    assert torch.equal(simulation.model, model)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_recorded_calls_make_the_same_model_again(name, simulate):
    calls = []
    simulation = simulate(ALGORITHMS[name](), **LOSSY, record=calls.append)
    run(simulation)
    replayed = Coordinator(
        ALGORITHMS[name](), torch.zeros(2), clients=4, local=local_plan(), seed=1, lease_seconds=LOSSY["lease_seconds"]
    )
    for call in calls:
        replayed.replay(call)
    assert replayed.algorithm.version == simulation.coordinator.algorithm.version > 5
    assert torch.equal(replayed.algorithm.model, simulation.model)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_events_and_model_do_not_depend_on_batches_or_evaluations(name, simulate):
    def world(batch_limit, every):
        simulation = simulate(ALGORITHMS[name](), **LOSSY, trainer=QuadraticTrainer(TARGETS, batch_limit), every=every)
        run(simulation)
        return simulation

    reference, other = world(1, 10.0), world(16, 0.7)
    assert reference.ended == other.ended
    assert torch.equal(reference.model, other.model)


@pytest.mark.parametrize(
    ("stop", "end"),
    [
        (Stop(virtual_seconds=7.5), (7.5, 7, 7)),
        (Stop(versions=3), (3, 3, 3)),
        (Stop(updates=5), (5, 5, 5)),
        (Stop(virtual_seconds=2.0, updates=5), (2, 2, 2)),
    ],
)
def test_a_run_ends_at_the_first_limit(simulate, stop, end):
    last = run(simulate(step_seconds=(1.0,), stop=stop))[-1]
    assert (last.seconds, last.version, last.counted) == end


def test_visits_that_take_no_time_do_not_stop_the_clock(simulate):
    assert run(simulate(step_seconds=(1e-300, 1e-300), stop=Stop(updates=5)))[-1].counted == 5


def test_a_client_that_never_finishes_does_not_stop_the_rounds_of_the_others(simulate):
    simulation = simulate(
        FedAvg(cohort=3), step_seconds=(1.0, 1.0, 1e9), lease_seconds=5.0, stop=Stop(virtual_seconds=26.0)
    )
    assert run(simulation)[-1].version == 5
    assert set(visits_of(simulation, "client")) == {0, 1}


@pytest.mark.parametrize("batch_limit", [1, 16])
def test_training_that_diverges_but_is_not_needed_does_not_end_the_run(simulate, batch_limit):
    simulation = simulate(
        FedAvg(cohort=1, over_selection=2.0),
        step_seconds=(1.0, 5.0),
        trainer=QuadraticTrainer(TARGETS, batch_limit, lambda job: job.client == 1),
        stop=Stop(versions=1),
    )
    assert run(simulation)[-1].version == 1
    assert visits_of(simulation, "client", "outcome") == [(0, "counted")]


@pytest.mark.parametrize("speed", [1e-3, 1e300])
def test_with_all_data_in_one_place_nothing_travels(simulate, speed):
    simulation = simulate(
        SequentialSGD(cohort=3),
        step_seconds=(0.5,),
        down=speed,
        up=speed,
        plan=local_plan(2),
        stop=Stop(versions=3),
        trainer=QuadraticTrainer(torch.tensor([[1.0, 10.0]])),
        every=3.0,
    )
    evaluations = run(simulation)
    # Six steps of half a second; each of them goes half of the way to the target.
    assert visits_of(simulation, "assigned_seconds", "ended_seconds") == [(0, 3), (3, 6), (6, 9)]
    assert visits_of(simulation, "version", "staleness") == [(0, 0), (1, 0), (2, 0)]
    assert visits_of(simulation, "bytes_down", "bytes_up", "outcome") == [(0, 0, "counted")] * 3
    assert [(e.bytes_down, e.bytes_up) for e in evaluations] == [(0, 0)] * 4
    assert [e.metrics["accuracy"] for e in evaluations] == pytest.approx([1 - 0.5 ** (6 * n) for n in range(4)])
    torch.testing.assert_close(simulation.model, torch.tensor([1.0, 10.0]) * (1 - 0.5**18))


def test_a_simulation_without_masks_needs_only_what_a_bare_gpu_machine_has():
    code = (
        "import sys\n"
        "for name in ('cryptography', 'pydantic', 'fastapi', 'httpx', 'click'):\n"
        "    sys.modules[name] = None\n"
        "import offbeat.simulation.simulator, offbeat.training.trainers.choice"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
