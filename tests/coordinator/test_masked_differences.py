"""Masked differences in any script: the average is that of the clients' own numbers, whatever sums become of."""

from random import Random

import pytest
import torch

from offbeat.algorithms import MIFA, FedLaAvg
from offbeat.algorithms.components.buffers.secret import secret
from offbeat.coordinator.participation_limits import Participation
from offbeat.tensor_file import read_checkpoint, write_checkpoint
from tests.coordinator.conftest import CLIENTS, LENGTH, everybody_present, make
from tests.effort import cases

STEP = 0.1
MODULUS = 2**32


class Clients:
    """Six clients, which remember the numbers of the last update that counted, and of the one before."""

    def __init__(self):
        self.memories = [{} for _ in range(CLIENTS)]  # by version, at most two
        self.masks = {}
        self.sent = {}

    def vector(self, assignment, number):
        """Return a masked difference to what the server says it has."""
        client, since = assignment.client, assignment.since
        before = 0 if since is None else self.memories[client][since]
        mask = hash((client, assignment.visit, number)) % MODULUS
        self.masks[client], self.sent[client] = mask, number
        return torch.full((LENGTH,), (number - before + mask + 2**31) % MODULUS - 2**31).to(torch.int32)

    def count(self, assignment):
        memory = self.memories[assignment.client]
        earlier = {since: memory[since] for since in (assignment.since,) if since is not None}
        self.memories[assignment.client] = earlier | {assignment.version: self.sent[assignment.client]}


def coordinator_of(is_mifa, record=None):
    algorithm = MIFA(weighting="uniform") if is_mifa else FedLaAvg(cohort=3, weighting="uniform")
    algorithm.wrap(secret(step=STEP, bound=10**6, least=2))
    return make(algorithm, record, participation=Participation(CLIENTS))


def opened(coordinator, clients):
    closed = coordinator.sealed_sums.waiting()[0]
    masks = sum(clients.masks[entry.update.client] for entry in closed.entries)
    total = (coordinator.algorithm.buffer.masked_sum(closed).long() - masks) % MODULUS
    return torch.where(total >= MODULUS // 2, total - MODULUS, total).to(torch.int32)


def script_of(seed):
    """Return 400 actions, each with a client and a number."""
    random = Random(seed)
    kinds = random.choices(range(5), weights=(20, 1, 8, 1, 1), k=400)
    return [(kind, random.randrange(CLIENTS), random.randrange(-1000, 1000)) for kind in kinds]


@pytest.mark.parametrize("is_mifa", [False, True])
@pytest.mark.parametrize("seed", range(cases(12)))
def test_the_average_is_that_of_the_latest_opened_updates(seed, is_mifa, tmp_path):
    records = []
    coordinator, clients = coordinator_of(is_mifa, records.append), Clients()
    latest, model, now = {}, 0.0, 0.0
    everybody_present(coordinator)
    for action, client, number in script_of(seed):
        now += 1.0
        sums = coordinator.sealed_sums
        assignment = coordinator.visits.assignment(client)
        if action == 0 and assignment is not None:
            vector = clients.vector(assignment, number)
            report = {"examples": 1, "steps": 2, "normaliser": 2.0, "since": assignment.since, "share": b"share"}
            if coordinator.receive(now, client, assignment.visit, vector, **report).counted:
                clients.count(assignment)
            coordinator.present(now, client)
        elif action == 1 and assignment is not None:
            coordinator.drop(now, client, assignment.visit)
            coordinator.present(now, client)
        elif action == 2 and sums.waiting():
            in_it = [entry.update.client for entry in sums.waiting()[0].entries]
            total = opened(coordinator, clients)
            latest |= {one: clients.sent[one] for one in in_it}
            sums.reveal(now, total)
            average = sum(latest.values()) * (STEP / CLIENTS)
            model -= average
            torch.testing.assert_close(coordinator.algorithm.model, torch.full((LENGTH,), model), rtol=1e-5, atol=1e-3)
            assert coordinator.algorithm.buffer._total.tolist() == [sum(latest.values())] * LENGTH
        elif action == 3 and sums.waiting():
            sums.discard(now)
        elif action == 4 and sums.waiting():
            entries = sums.waiting()[0].entries
            sums.withdraw(now, entries[number % len(entries)].update.client)
        coordinator.assign(now)
    again = coordinator_of(is_mifa)
    for call in records:
        again.replay(call)
    restarted = coordinator_of(is_mifa)
    path = tmp_path / "state"
    write_checkpoint(path, coordinator.state_dict())
    restarted.load_state_dict(read_checkpoint(path))
    for other in (again, restarted):
        assert torch.equal(other.algorithm.model, coordinator.algorithm.model)
        assert [visit.since for visit in other.visits.open_assignments()] == [
            visit.since for visit in coordinator.visits.open_assignments()
        ]
        assert torch.equal(other.algorithm.buffer._total, coordinator.algorithm.buffer._total)
        assert other.algorithm.buffer._heard == coordinator.algorithm.buffer._heard
