"""An algorithm's requests to its driver.

These are a vector beside the model, deadlines, losses, selection and stops.
"""

import math

import numpy as np
import pytest
import torch

from offbeat.algorithms import MIFA, SCAFFOLD, FedBuff, FedLaAvg, LocalPlan
from offbeat.algorithms.components.buffers.wrappers import limit
from offbeat.algorithms.components.staleness import constant
from offbeat.checkpoint import read_checkpoint, write_checkpoint
from offbeat.coordinator.selection import UniformPool
from offbeat.simulation.records import Stop
from tests.simulation.conftest import run

FREE = {"up": 1e300, "down": 1e300}


class Ringmaster(FedBuff):
    """Ringmaster ASGD with stops: updates staler than a bound are refused, and their clients stop at once."""

    wants_all = False
    bound = 2

    def wants(self, client, version):
        return super().wants(client, version) and self.version - version < self.bound

    def cancelled(self):
        return self.schedule.before(self.version - self.bound + 1)


class Grouped(FedBuff):
    """A FedCompass-like grouping: all that arrives until a group's deadline makes one version."""

    group_seconds: float = 4.0

    def begin(self, model):
        self.due = math.inf

    def assign(self, client, local):
        if self.due == math.inf:
            self.due = self.now + self.group_seconds
        return super().assign(client, local)

    def is_ready(self):
        return self.buffer.count > 0 and self.now >= self.due

    def deadline(self):
        return self.due

    def tick(self):
        made = self._close()
        self.due = math.inf
        return made


class HighestLossPool(UniformPool):
    """An Oort-like selection: the client with the highest last loss comes first, those without one before all."""

    def __init__(self, clients, seed):
        super().__init__(clients, seed)
        self.losses = [math.inf] * clients

    def pick(self):
        client = max(self, key=lambda one: (self.losses[one], -one))
        self.discard(client)
        return client

    def counted(self, update):
        self.losses[update.client] = update.loss


class Greedy(FedBuff):
    needs_loss = True
    selection = HighestLossPool


def visits_of(simulation, *columns):
    return [tuple(getattr(visit, column) for column in columns) for visit in simulation.ended]


def test_an_update_that_the_algorithm_refuses_is_unused(simulate):
    algorithm = FedBuff(buffer_size=1, concurrency=2, staleness=constant())
    algorithm.wrap(limit(2.5))  # client i's first delta is half its target, at most (3, 13)/2
    simulation = simulate(algorithm, stop=Stop(virtual_seconds=4.0), length=1, **FREE)
    last = run(simulation)[-1]
    outcomes = set(visits_of(simulation, "outcome"))
    assert outcomes == {("counted",)}
    assert last.unused == 0
    algorithm = FedBuff(buffer_size=1, concurrency=2, staleness=constant())
    algorithm.wrap(limit(0.6))
    simulation = simulate(algorithm, stop=Stop(virtual_seconds=4.0), length=1, **FREE)
    last = run(simulation)[-1]
    refused = {client for client, outcome in visits_of(simulation, "client", "outcome") if outcome == "unused"}
    assert refused
    assert refused <= {2, 3}  # the deltas of clients 0 and 1 are at most ½ from the start
    assert last.unused == sum(outcome == "unused" for (outcome,) in visits_of(simulation, "outcome"))


def test_a_stopped_client_hears_of_it_at_once_and_its_work_is_unused(simulate):
    simulation = simulate(
        Ringmaster(buffer_size=1, concurrency=2, staleness=constant()),
        step_seconds=(1.0, 10.0),
        stop=Stop(virtual_seconds=9.5),
        **FREE,
    )
    run(simulation)
    stopped = visits_of(simulation, "client", "ended_seconds", "outcome")
    # Client 0 makes a version each second; at the second one client 1, which began from version 0, stops.
    assert (1, 2.0, "unused") in stopped
    assert [seconds for client, seconds, _ in stopped if client == 1] == [2, 4, 6, 8]
    assert all(outcome == "counted" for client, _, outcome in stopped if client == 0)


def test_a_group_ends_at_its_deadline(simulate):
    simulation = simulate(
        Grouped(buffer_size=1, concurrency=4, staleness=constant()),
        step_seconds=(1.0, 1.5, 3.0, 9.0),
        stop=Stop(virtual_seconds=13.0),
        every=1.0,
        **FREE,
    )
    made = {}
    for evaluation in run(simulation):
        made.setdefault(evaluation.version, evaluation.seconds)
    assert list(made.items())[:3] == [(0, 0), (1, 4), (2, 8)]


def test_a_deadline_outlives_an_interruption(simulate, tmp_path):
    def fresh():
        return simulate(
            Grouped(buffer_size=1, concurrency=4, staleness=constant()), stop=Stop(virtual_seconds=15.0), every=1.0
        )

    whole = run(fresh())
    first, second = fresh(), fresh()
    rows = [row for row in (first.step() for _ in range(30)) if row is not None]
    write_checkpoint(tmp_path / "state", first.state_dict())
    second.load_state_dict(read_checkpoint(tmp_path / "state"))
    assert rows + run(second) == whole


def test_a_selection_of_ones_own_sees_the_losses(simulate):
    class Losses(simulate.trainer):
        def collect(self, jobs):
            results = super().collect(jobs)
            return [type(result)(result.vector, float(job.client)) for job, result in zip(jobs, results, strict=True)]

    targets = torch.zeros(4, 1)
    simulation = simulate(
        Greedy(buffer_size=1, concurrency=1), trainer=Losses(targets), length=1, stop=Stop(updates=8), **FREE
    )
    run(simulation)
    assert [client for (client,) in visits_of(simulation, "client")] == [0, 1, 2, 3, 3, 3, 3, 3]


def test_scaffolds_clients_and_server_agree_with_numpy(simulate):
    rounds, rate, steps = 12, 0.1, 3
    plan = LocalPlan(steps=steps, batch_size=1, lr=rate)
    simulation = simulate(
        SCAFFOLD(cohort=4, server_lr=0.8), plan=plan, length=2, stop=Stop(versions=rounds), every_versions=1
    )
    run(simulation)
    targets = np.arange(4.0)[:, None] + np.array([0.0, 10.0])
    model, control, own = np.zeros(2), np.zeros(2), np.zeros((4, 2))
    for _ in range(rounds):
        deltas = np.zeros((4, 2))
        for client in range(4):
            point = model.copy()
            for _ in range(steps):
                point = point - rate * (point - targets[client] + control - own[client])
            deltas[client] = model - point
        changes = deltas / (steps * rate) - control
        own, model, control = own + changes, model - 0.8 * deltas.mean(axis=0), control + changes.mean(axis=0)
    np.testing.assert_allclose(simulation.model.numpy(), model, rtol=1e-4)
    np.testing.assert_allclose(simulation.coordinator.algorithm.down().numpy(), control, atol=1e-3)


def test_what_goes_down_beside_the_model_is_counted(simulate):
    def bytes_of(algorithm):
        simulation = simulate(algorithm, stop=Stop(versions=3), length=2, **FREE)
        last = run(simulation)[-1]
        return last.bytes_down, last.bytes_up

    down, up = bytes_of(SCAFFOLD(cohort=4))
    assert (down, up) == (3 * 4 * 2 * 8, 3 * 4 * 8)
    assert {size for (size,) in visits_of(simulate(SCAFFOLD(cohort=4)), "bytes_down")} == set()


def test_the_download_takes_longer_by_what_goes_beside_the_model(simulate):
    simulation = simulate(SCAFFOLD(cohort=1), step_seconds=(1.0,), down=4.0, up=1e300, stop=Stop(versions=1))
    run(simulation)
    assert visits_of(simulation, "ended_seconds") == [(5.0,)]  # 16 bytes down, one step


@pytest.mark.parametrize("steps", range(0, 60, 7))
def test_a_run_with_variates_outlives_an_interruption(simulate, tmp_path, steps):
    def fresh():
        return simulate(
            SCAFFOLD(cohort=2, over_selection=1.5),
            loss_probability=(0.3,) * 4,
            lease_seconds=6.0,
            stop=Stop(virtual_seconds=60.0),
            every=5.0,
        )

    whole = fresh()
    rows = run(whole)
    first, second = fresh(), fresh()
    before = [row for row in (first.step() for _ in range(steps)) if row is not None]
    write_checkpoint(tmp_path / "state", first.state_dict())
    second.load_state_dict(read_checkpoint(tmp_path / "state"))
    assert before + run(second) == rows
    assert torch.equal(second.model, whole.model)
    assert rows[-1].version > 5


def test_rounds_of_who_is_available_make_many_more_versions_than_rounds_of_all(simulate, intervals):
    """Half of the clients are offline for long, and one is slow: a cohort of all waits for them."""
    numbers = np.random.default_rng(2)
    starts = numbers.uniform(0, 900, (10, 3))
    there = [[(0, 1e6)]] * 10 + [[(start, start + 40) for start in sorted(row)] for row in starts]
    world = {
        "step_seconds": (1.0,) * 19 + (5.0,),
        "availability": intervals(*[merged(times) for times in there]),
        "lease_seconds": 100.0,
        "stop": Stop(virtual_seconds=1000.0),
        **FREE,
    }
    versions = [run(simulate(make(), **world))[-1].version for make in (MIFA, lambda: FedLaAvg(cohort=20))]
    assert versions[0] >= 20 * versions[1]
    assert versions[1] > 0


def merged(times):
    rows = []
    for start, end in times:
        if rows and start <= rows[-1][1]:
            rows[-1] = (rows[-1][0], end)
        else:
            rows.append((start, end))
    return rows
