import hashlib
from dataclasses import replace

import torch

from offbeat.algorithms import FedBuff, LocalPlan
from offbeat.algorithms.components.buffers.secret import secret
from offbeat.coordinator import Coordinator
from offbeat.coordinator.participation_limits import Participation
from offbeat.simulation.masked_updates import MaskedUpdates
from offbeat.whole_numbers import Grid
from tests.algorithms.case import Deferred

PLAN = LocalPlan(steps=4, batch_size=1, lr=0.1)
RULES = MaskedUpdates(Grid(clip_norm=8.0, largest=8), seed=1, open_sum=lambda number, total: total)


def numbers_of(vector, *, divisor=1.0, scale=1.0, rules=RULES, client=0, visit=0):
    return rules.promise(Deferred(torch.tensor(vector)), client, visit, divisor, scale).resolve()


def test_an_update_is_divided_clipped_and_scaled_in_this_order():
    # (12, 16) / 2 has the norm 10; clipped to 8 it is (4.8, 6.4), and half of that (2.4, 3.2).
    many = [numbers_of([12.0, 16.0], divisor=2.0, scale=0.5, visit=visit) for visit in range(400)]
    found = torch.stack(many)
    assert found.dtype == torch.int32
    assert set(found[:, 0].tolist()) == {2, 3}
    assert set(found[:, 1].tolist()) == {3, 4}
    torch.testing.assert_close(found.double().mean(dim=0), torch.tensor([2.4, 3.2]).double(), atol=0.1, rtol=0)


def test_a_short_update_is_not_clipped():
    assert numbers_of([3.0, -4.0]).tolist() == [3, -4]


def test_each_visit_is_rounded_by_itself_and_again_in_the_same_way():
    vector = [0.5] * 64
    first = numbers_of(vector)
    assert torch.equal(first, numbers_of(vector))
    others = [
        numbers_of(vector, visit=1),
        numbers_of(vector, client=1),
        numbers_of(vector, rules=replace(RULES, seed=2)),
    ]
    assert all(not torch.equal(first, other) for other in others)


def test_an_update_is_trained_only_when_its_sum_is_opened():
    work = Deferred(torch.tensor([1.0]))
    promise = RULES.promise(work, 0, 0, 1.0, 1.0)
    assert work.resolved == 0
    assert promise.resolve().tolist() == [1]
    assert work.resolved == 1
    assert len(promise.key) == hashlib.sha256().digest_size


def test_sums_are_opened_by_their_numbers_oldest_first():
    opened = []

    def open_sum(number, total):
        opened.append((number, total.tolist()))
        return total

    algorithm = FedBuff(buffer_size=1, concurrency=3)
    algorithm.wrap(secret(step=1.0, bound=100, least=1))
    coordinator = Coordinator(algorithm, torch.zeros(1), clients=3, local=PLAN, participation=Participation(3))
    rules = replace(RULES, open_sum=open_sum)
    for client in range(3):
        coordinator.present(0.0, client)
    for value, assignment in enumerate(coordinator.assign(0.0), start=5):
        vector = torch.tensor([value], dtype=torch.int32)
        report = {"examples": 1, "steps": 4, "normaliser": 4.0, "share": b""}
        coordinator.receive(1.0, assignment.client, assignment.visit, vector, **report)
        if value == 6:
            rules.open(1.0, coordinator)
    rules.open(2.0, coordinator)
    rules.open(2.0, coordinator)
    assert opened == [(1, [5]), (2, [6]), (3, [7])]
    assert coordinator.algorithm.model.tolist() == [-18.0]
