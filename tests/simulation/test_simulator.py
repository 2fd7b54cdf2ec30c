import heapq

import numpy as np
import pytest
import torch

from offbeat.algorithms import FedAsync, FedAvg, FedBuff, LocalPlan
from offbeat.algorithms.components.staleness import constant
from offbeat.coordinator import Coordinator
from offbeat.errors import OffbeatError
from offbeat.simulation.records import Stop
from offbeat.training.trainers.trainer import Result
from tests.simulation.conftest import run

ALGORITHMS = {
    "fedavg": lambda: FedAvg(cohort=2, over_selection=1.5),
    "fedasync": lambda: FedAsync(concurrency=3),
    "fedbuff": lambda: FedBuff(buffer_size=2, concurrency=3),
}


LOSSY = (0.0, 0.5, 0.0, 0.5)


def test_updates_that_arrive_together_are_all_in_before_work_is_given_out(simulate):
    simulation = simulate(FedBuff(buffer_size=4, concurrency=4), step_seconds=(1.0,) * 4, stop=Stop(versions=2))
    run(simulation)
    assert [visit.version for visit in simulation.ended] == [0] * 4 + [1] * 4
    assert {visit.staleness for visit in simulation.ended} == {0}


def test_plain_asynchronous_sgd_equals_a_few_lines_of_it(simulate):
    """FedBuff with K = 1 and constant weights: every client at work, each delta subtracted as it arrives."""
    simulation = simulate(
        FedBuff(buffer_size=1, staleness=constant(), concurrency=4),
        step_seconds=(1.0, 1.7312, 2.3178, 0.6453),
        stop=Stop(updates=30),
    )
    run(simulation)

    step_seconds, model = (1.0, 1.7312, 2.3178, 0.6453), torch.zeros(2)
    targets = torch.arange(4.0)[:, None] + torch.tensor([0.0, 10.0])
    arrivals = [(seconds, client, model) for client, seconds in enumerate(step_seconds)]
    heapq.heapify(arrivals)
    for _ in range(30):
        now, client, start = heapq.heappop(arrivals)
        model = model - (start - (start - 0.5 * (start - targets[client])))
        heapq.heappush(arrivals, (now + step_seconds[client], client, model))
    assert torch.equal(simulation.model, model)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_recorded_calls_make_the_same_model_again(name, simulate):
    calls = []
    simulation = simulate(
        ALGORITHMS[name](),
        loss_probability=LOSSY,
        lease_seconds=6.0,
        stop=Stop(virtual_seconds=60),
        record=calls.append,
    )
    run(simulation)
    replayed = Coordinator(
        ALGORITHMS[name](),
        torch.zeros(2),
        clients=4,
        local=LocalPlan(steps=1, batch_size=1, lr=0.5),
        seed=1,
        lease_seconds=6.0,
    )
    for call in calls:
        replayed.replay(call)
    assert replayed.algorithm.version == simulation.coordinator.algorithm.version > 5
    assert torch.equal(replayed.algorithm.model, simulation.model)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_events_and_model_do_not_depend_on_when_work_is_done(name, simulate):
    """Other batches and other evaluations: the same events and the same model."""

    def world(batch_limit, every):
        trainer = simulate.trainer(torch.arange(4.0)[:, None] + torch.tensor([0.0, 10.0]), batch_limit)
        simulation = simulate(
            ALGORITHMS[name](),
            loss_probability=LOSSY,
            lease_seconds=6.0,
            stop=Stop(virtual_seconds=60),
            trainer=trainer,
            every=every,
        )
        run(simulation)
        return simulation

    reference, other = world(1, 10.0), world(16, 0.7)
    assert reference.ended == other.ended
    assert torch.equal(reference.model, other.model)


@pytest.mark.parametrize(
    ("stop", "seconds", "version", "counted"),
    [
        (Stop(virtual_seconds=7.5), 7.5, 7, 7),
        (Stop(versions=3), 3.0, 3, 3),
        (Stop(updates=5), 5.0, 5, 5),
        (Stop(virtual_seconds=2.0, updates=5), 2.0, 2, 2),
    ],
)
def test_a_run_ends_at_whatever_comes_first(simulate, stop, seconds, version, counted):
    simulation = simulate(FedBuff(buffer_size=1, concurrency=1), step_seconds=(1.0,), stop=stop, down=1e300, up=1e300)
    last = run(simulation)[-1]
    assert (last.seconds, last.version, last.counted) == (seconds, version, counted)


def test_visits_that_take_no_time_do_not_stop_the_world(simulate):
    simulation = simulate(
        FedBuff(buffer_size=1, concurrency=1),
        step_seconds=(1e-300, 1e-300),
        up=1e300,
        down=1e300,
        stop=Stop(updates=5),
    )
    assert run(simulation)[-1].counted == 5


def test_a_client_that_is_late_for_ever_does_not_stop_the_rounds_of_the_others(simulate):
    simulation = simulate(
        FedAvg(cohort=3), step_seconds=(1.0, 1.0, 1e9), lease_seconds=5.0, stop=Stop(virtual_seconds=26.0)
    )
    assert run(simulation)[-1].version == 5
    assert {visit.client for visit in simulation.ended} == {0, 1}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_coordinator_restored_again_and_again_goes_on_to_the_same_model(name, simulate):
    def world():
        return simulate(
            ALGORITHMS[name](),
            loss_probability=LOSSY,
            lease_seconds=6.0,
            stop=Stop(virtual_seconds=60),
            every=1.3,
        )

    undisturbed, disturbed = world(), world()
    run(undisturbed)
    for _ in disturbed.run():
        restored = Coordinator(
            ALGORITHMS[name](),
            torch.zeros(2),
            clients=4,
            local=LocalPlan(steps=1, batch_size=1, lr=0.5),
            seed=1,
            lease_seconds=6.0,
        )
        restored.load_state_dict(disturbed.coordinator.state_dict())
        disturbed.coordinator.load_state_dict(restored.state_dict())
    assert disturbed.ended == undisturbed.ended
    assert torch.equal(disturbed.model, undisturbed.model)


def test_a_divergence_that_nobody_needs_does_not_end_the_run(simulate):
    class Diverging(simulate.trainer):
        def collect(self, jobs):
            results = super().collect(jobs)
            nan = torch.full((2,), float("nan"))
            return [Result(nan, 0.0) if job.client == 1 else r for job, r in zip(jobs, results, strict=True)]

    def world(batch_limit):
        simulation = simulate(
            FedAvg(cohort=1, over_selection=2.0),
            step_seconds=(1.0, 5.0),
            trainer=Diverging(torch.zeros(2, 2), batch_limit),
            stop=Stop(versions=1),
        )
        return run(simulation)[-1].version, simulation.ended

    assert world(1) == world(16)


def test_transfers_that_never_end_are_refused(simulate):
    with pytest.raises(OffbeatError, match="never ends"), np.errstate(over="ignore"):
        simulate(FedBuff(), up=1e-320)
