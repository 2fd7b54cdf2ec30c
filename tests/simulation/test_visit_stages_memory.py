"""The memory of clients from visit to visit, and compressed uploads."""

from collections import Counter

import pytest
import torch
from offbeat_core.errors import OffbeatError

from offbeat.algorithms import FedLaAvg
from offbeat.algorithms.components import Compression
from offbeat.algorithms.components.weights import constant
from offbeat.simulation.totals import Stop
from tests.simulation.conftest import QuadraticTrainer, local_plan, one_by_one, run

N = 5
LENGTH = 4
TARGETS = torch.arange(float(N))[:, None] + torch.tensor([0.0, 10.0, -4.0, 3.0])
TOP_1 = Compression("top_k", (("share", 0.25),))
TIMES = [
    [(0, 9), (13, 21), (22, 40), (55, 400)],
    [(0, 30), (31, 33), (40, 77), (80, 400)],
    [(2, 4), (5, 12), (30, 60), (61, 62.5), (70, 121), (130, 150), (160, 400)],
    [(0, 400)],
    [(1, 5), (14, 17), (18.5, 25), (33, 35), (43, 48), (56, 90), (100, 144), (153, 157), (166, 400)],
]


def largest(vector):
    """The vector with nothing but its largest entry."""
    kept = torch.zeros_like(vector)
    place = vector.abs().argmax()
    kept[place] = vector[place]
    return kept


@pytest.fixture
def world(simulate, intervals):
    """Some clients are lost, some are late, and the updates of some are no longer wanted."""

    class Watched(QuadraticTrainer):
        def collect(self, jobs):
            results = super().collect(jobs)
            for job, result in zip(jobs, results, strict=True):
                self.deltas[job.client, job.visit] = result.vector.clone()
            return results

    def build(algorithm, batch_limit=1, compression=None, error_feedback=False, **more):
        trainer = Watched(TARGETS, batch_limit)
        trainer.deltas = {}
        arguments = {
            "step_seconds": (1.0, 1.5, 2.0, 4.0, 2.5),
            "down": 64.0,
            "up": (29 if compression else 16) / 2.5,  # uploads take as long as uncompressed ones
            "loss_probability": (0.0, 0.5, 0.0, 0.3, 0.0),
            "availability": intervals(*TIMES),
            "lease_seconds": 7.0,
            "every": 7.3,
            "stop": Stop(virtual_seconds=200.0),
            "length": LENGTH,
            "trainer": trainer,
            "plan": local_plan(compression=compression, error_feedback=error_feedback),
        }
        simulation = simulate(algorithm, **arguments | more)
        return simulation, trainer.deltas

    return build


def versions(simulation):
    """Run to the end; yield each new model, and the one before."""
    before = simulation.model.clone()
    version = 0
    while not simulation.finished:
        simulation.step()
        if simulation.coordinator.algorithm.version > version:
            version += 1
            model = simulation.model.clone()
            yield before, model
            before = model


def check_variety(simulation):
    fates = Counter((visit.outcome, visit.bytes_up > 0) for visit in simulation.ended)
    # Counted, refused before the upload, too late after it, lost, and lost on the way.
    assert fates["counted", True] > 30
    assert fates["unused", False] > 0
    assert fates["unused", True] > 0
    assert fates["lost", False] > 5


@pytest.mark.parametrize("batch_limit", [1, 100])
@pytest.mark.parametrize("compression", [None, TOP_1], ids=["whole", "compressed"])
def test_every_step_is_the_average_of_the_last_counted_updates_of_all_clients(world, compression, batch_limit):
    algorithm = FedLaAvg(cohort=2, server_lr=0.5)
    simulation, deltas = world(algorithm, batch_limit, compression)
    at_the_server = torch.zeros(N, LENGTH)  # of each client
    noted = made = 0

    def note_what_counted():
        nonlocal noted
        for visit in simulation.ended[noted:]:
            if visit.outcome == "counted":
                update = deltas[visit.client, visit.visit]
                if compression is None:
                    at_the_server[visit.client] = update
                else:
                    at_the_server[visit.client] += largest(update - at_the_server[visit.client])
        noted = len(simulation.ended)

    for before, model in versions(simulation):
        note_what_counted()
        made += 1
        torch.testing.assert_close(before - 0.5 * at_the_server.mean(0), model, rtol=0, atol=2e-5)
    assert made > 15
    check_variety(simulation)
    memories = {client: memory.resolve() for client, memory in simulation._stages.training._memories.items()}
    note_what_counted()
    assert sorted(memories) == list(range(N))
    for client, memory in memories.items():
        torch.testing.assert_close(memory, at_the_server[client], rtol=0, atol=2e-5)


@pytest.mark.parametrize("batch_limit", [1, 100])
def test_the_part_that_compression_drops_is_remembered_if_the_update_counted(world, batch_limit):
    """Each client's memory is m ← m + Δ, less what was sent; of lost and unused visits nothing is left."""
    algorithm = one_by_one(3, staleness=constant())
    simulation, deltas = world(algorithm, batch_limit, TOP_1, error_feedback=True, max_staleness=1)
    memories = torch.zeros(N, LENGTH)
    for before, model in versions(simulation):
        last = simulation.ended[-1]
        assert last.outcome == "counted"
        total = memories[last.client] + deltas[last.client, last.visit]
        torch.testing.assert_close(before - largest(total), model, rtol=0, atol=2e-5)
        memories[last.client] = total - largest(total)
        kept = simulation._stages.training._memories[last.client].resolve()
        torch.testing.assert_close(kept, memories[last.client], atol=2e-5, rtol=0)
    check_variety(simulation)


def test_each_difference_names_the_version_that_the_clients_last_one_was_made_from(world):
    calls = []
    simulation, _ = world(FedLaAvg(cohort=2), record=calls.append)
    run(simulation)
    counted = {(visit.client, visit.visit): visit.version for visit in simulation.ended if visit.outcome == "counted"}
    since = {}
    for call in calls:
        if call.name == "receive":
            key = call.arguments["client"], call.arguments["visit"]
            assert call.arguments["since"] == since.get(key[0])
            if key in counted:
                since[key[0]] = counted[key]
    assert len(since) == N


def test_a_diverged_visit_that_a_later_one_needs_ends_the_run(simulate):
    trainer = QuadraticTrainer(torch.ones(1, 2), diverges=lambda job: job.visit == 1)
    simulation = simulate(FedLaAvg(cohort=1), step_seconds=(1.0,), trainer=trainer, stop=Stop(versions=5))
    with pytest.raises(OffbeatError, match="client 0, from version 1"):
        run(simulation)
