"""An algorithm's requests to its driver.

These are a vector beside the model, deadlines, losses, selection and stops.
"""

import math

import numpy as np
import pytest
import torch

from offbeat.algorithms import SCAFFOLD, FedBuff
from offbeat.algorithms.components.buffers.wrappers import limit
from offbeat.algorithms.components.weights import constant
from offbeat.coordinator.selection import UniformPool
from offbeat.simulation.totals import Stop
from offbeat.training.trainers.backend import Result
from tests.simulation.conftest import QuadraticTrainer, ended, local_plan, one_by_one, resume, run, visits_of


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


class EqualDeadlines(FedBuff):
    """Makes a version at each of three deadlines, of which two are equal."""

    def begin(self, model):
        self.due = {0: 4.0, 1: 4.0, 2: 8.0}

    def is_ready(self):
        return self.buffer.count > 0 and self.now >= self.deadline()

    def deadline(self):
        return min(self.due.values(), default=math.inf)

    def tick(self):
        made = self._close()
        del self.due[min(self.due)]
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


@pytest.mark.parametrize(("norm", "refused"), [(2.5, set()), (0.6, {2, 3})])
def test_an_update_that_the_algorithm_refuses_is_unused(simulate, norm, refused):
    algorithm = one_by_one(2, staleness=constant())
    algorithm.wrap(limit(norm))  # client i's delta is at most i/2
    simulation = simulate(algorithm, stop=Stop(virtual_seconds=4.0), length=1)
    last = run(simulation)[-1]
    unused = [client for client, outcome in visits_of(simulation, "client", "outcome") if outcome == "unused"]
    assert bool(unused) is bool(refused)
    assert refused.issuperset(unused)
    assert last.unused == len(unused)


def test_a_stopped_client_hears_of_it_at_once_and_its_work_is_unused(simulate):
    simulation = simulate(
        Ringmaster(buffer_size=1, concurrency=2, staleness=constant()),
        step_seconds=(1.0, 10.0),
        stop=Stop(virtual_seconds=9.5),
    )
    stopped = ended(simulation, "client", "ended_seconds", "outcome")
    # Client 0 makes a version each second; at the second one client 1, which began from version 0, stops.
    assert (1, 2.0, "unused") in stopped
    assert [seconds for client, seconds, _ in stopped if client == 1] == [2, 4, 6, 8]
    assert all(outcome == "counted" for client, _, outcome in stopped if client == 0)


def grouped(simulate):
    return simulate(
        Grouped(buffer_size=1, concurrency=4, staleness=constant()),
        step_seconds=(1.0, 1.5, 3.0, 9.0),
        stop=Stop(virtual_seconds=13.0),
        every=1.0,
    )


def test_a_group_ends_at_its_deadline(simulate):
    made = {}
    for evaluation in run(grouped(simulate)):
        made.setdefault(evaluation.version, evaluation.seconds)
    assert list(made.items())[:3] == [(0, 0), (1, 4), (2, 8)]


def test_an_equal_deadline_does_not_hide_a_later_one(simulate):
    made = {}
    simulation = simulate(
        EqualDeadlines(buffer_size=1, concurrency=4, staleness=constant()),
        step_seconds=(3.0, 3.0, 3.0, 3.0),
        stop=Stop(virtual_seconds=13.0),
        every=1.0,
    )
    for evaluation in run(simulation):
        made.setdefault(evaluation.version, evaluation.seconds)
    assert made == {0: 0, 1: 4, 2: 8}


def test_a_deadline_survives_a_restart(simulate, tmp_path):
    expected, first = run(grouped(simulate)), grouped(simulate)
    rows = [row for row in (first.step() for _ in range(30)) if row is not None]
    assert rows + run(resume(grouped(simulate), first, tmp_path)) == expected


def test_a_users_selection_sees_the_losses(simulate):
    class Losses(QuadraticTrainer):
        def collect(self, jobs):
            return [Result(r.vector, float(j.client)) for j, r in zip(jobs, super().collect(jobs), strict=True)]

    greedy = Greedy(buffer_size=1, concurrency=1)
    simulation = simulate(greedy, trainer=Losses(torch.zeros(4, 1)), length=1, stop=Stop(updates=8))
    assert ended(simulation, "client") == [0, 1, 2, 3, 3, 3, 3, 3]


def test_scaffolds_clients_and_server_agree_with_numpy(simulate):
    rounds, rate, steps = 12, 0.1, 3
    plan = local_plan(steps, lr=rate)
    simulation = simulate(SCAFFOLD(cohort=4, server_lr=0.8), plan=plan, stop=Stop(versions=rounds), every_versions=1)
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


def test_a_vector_that_is_sent_beside_the_model_takes_its_bytes_and_its_time(simulate):
    last = run(simulate(SCAFFOLD(cohort=4), stop=Stop(versions=3)))[-1]
    assert (last.bytes_down, last.bytes_up) == (3 * 4 * 2 * 8, 3 * 4 * 8)
    simulation = simulate(SCAFFOLD(cohort=1), step_seconds=(1.0,), down=4.0, stop=Stop(versions=1))
    assert ended(simulation, "ended_seconds") == [5.0]  # 16 bytes down, one step
