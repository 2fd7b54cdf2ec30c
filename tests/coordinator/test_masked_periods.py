"""Masked sums of periods in any script: each has enough clients, each once, and its updates are in the model once."""

from random import Random

import pytest
import torch

from offbeat.algorithms import AsyncCommSGD, FedLuck
from offbeat.algorithms.components.buffers.secret import secret
from offbeat.algorithms.components.schedules.patterns import imbalanced, random
from offbeat.coordinator.participation_limits import Participation
from offbeat.tensor_file import read_checkpoint, write_checkpoint
from tests.coordinator.conftest import CLIENTS, LENGTH, everybody_present, make
from tests.effort import cases

LEAST = 2
MAKERS = {
    "random": lambda: AsyncCommSGD(weighting="uniform", pattern=random(p=0.3)),
    "imbalanced": lambda: AsyncCommSGD(weighting="uniform", pattern=imbalanced()),
    "fedluck": FedLuck,
}


def coordinator_of(name, record=None):
    algorithm = MAKERS[name]()
    algorithm.measures = False
    algorithm.wrap(secret(step=1.0, bound=10**6, least=LEAST))
    return make(algorithm, record, participation=Participation(CLIENTS))


def script_of(seed):
    """Return 300 actions: receive, drop, tick, reveal, discard, withdraw; each with a client and a number."""
    random = Random(seed)
    kinds = random.choices(range(6), weights=(20, 1, 10, 8, 1, 1), k=300)
    return [(kind, random.randrange(CLIENTS), random.randrange(-1000, 1000)) for kind in kinds]


@pytest.mark.parametrize("name", list(MAKERS))
@pytest.mark.parametrize("seed", range(cases(8)))
def test_each_sum_has_enough_clients_and_each_update_counts_once(name, seed, tmp_path):
    records = []
    coordinator = coordinator_of(name, records.append)
    algorithm, sums = coordinator.algorithm, coordinator.sealed_sums
    everybody_present(coordinator)
    sent, opened, starts, model, now = {}, set(), {}, 0.0, 0.0
    for action, client, number in script_of(seed):
        now += 1.0
        assignment = coordinator.visits.assignment(client)
        waiting = sums.waiting()
        if action == 0 and assignment is not None:
            report = {"examples": 1, "steps": 2, "normaliser": 2.0, "share": b"share"}
            vector = torch.full((LENGTH,), number, dtype=torch.int32)
            assert coordinator.receive(now, client, assignment.visit, vector, **report).counted
            sent[client, assignment.version] = number
            coordinator.present(now, client)
        elif action == 1 and assignment is not None:
            coordinator.drop(now, client, assignment.visit)
            coordinator.present(now, client)
        elif action == 2:
            coordinator.tick(now)
        elif action == 3 and waiting:
            updates = [entry.update for entry in waiting[0].entries]
            clients = [update.client for update in updates]
            assert len(set(clients)) == len(clients) >= LEAST
            for update in updates:
                assert update.version > starts.get(update.client, -1)
                starts[update.client] = update.version
                assert (update.client, update.version) not in opened
                opened.add((update.client, update.version))
            total = sum(sent[update.client, update.version] for update in updates)
            model -= total / (len(updates) if name == "fedluck" else CLIENTS)
            sums.reveal(now, algorithm.buffer.masked_sum(waiting[0]))
            torch.testing.assert_close(algorithm.model, torch.full((LENGTH,), model), rtol=1e-5, atol=1e-3)
        elif action == 4 and waiting:
            sums.discard(now)
        elif action == 5 and waiting:
            entries = waiting[0].entries
            sums.withdraw(now, entries[number % len(entries)].update.client)
        for given in coordinator.assign(now):  # no client of a sum that is not opened, or that is still to come
            assert given.client not in [entry.update.client for closed in sums.waiting() for entry in closed.entries]
            assert given.client not in [entry.update.client for entry in algorithm.buffer._entries]
    assert len(opened) > 10
    again, restarted = coordinator_of(name), coordinator_of(name)
    for call in records:
        again.replay(call)
    write_checkpoint(tmp_path / "state", coordinator.state_dict())
    restarted.load_state_dict(read_checkpoint(tmp_path / "state"))
    for other in (again, restarted):
        assert torch.equal(other.algorithm.model, algorithm.model)
        assert other.algorithm.buffer.count == algorithm.buffer.count
        assert other.algorithm.round == algorithm.round
        assert other.participation.counts() == coordinator.participation.counts()
