"""The selection policy of the how-to page on one's own: Oort's utility, exploration and restarts."""

import pytest
import torch

from offbeat.algorithms import LocalPlan, Update
from offbeat.coordinator import Coordinator
from offbeat.testing import check_algorithm
from tests.page_code import page_code

OORT = page_code("how-to/own-selection.md", "oort.py")


def update(client, version, loss, *, examples=10, seconds=1.0):
    """Return a counted update of a visit of five steps."""
    times = {"step_seconds": seconds / 10, "upload_seconds": seconds / 2}
    return Update(client, version, torch.zeros(1), examples=examples, steps=5, normaliser=5.0, loss=loss, **times)


def pool_of(clients, updates, **settings):
    """Return a pool of all these clients that has counted these updates."""
    pool = OORT.OortPool(clients, seed=3)
    vars(pool).update(settings)
    for client in range(clients):
        pool.add(client)
    for one in updates:
        pool.counted(one)
    return pool


def shares(pool, picks=1500):
    """Return how often each client is picked if it comes back at once."""
    counts = dict.fromkeys(sorted(pool.inside), 0)
    for _ in range(picks):
        client = pool.pick()
        counts[client] += 1
        pool.add(client)
    return [count / picks for count in counts.values()]


def test_utilities_are_those_computed_by_hand():
    # U = 10, 30, 20; in rounds 1, 4 and 2 of R = 5; T = 1 s is the median, and client 2 takes 4 s.
    updates = [update(0, 0, -1.0), update(2, 1, 0.5, examples=40, seconds=4.0), update(1, 3, 3.0)]
    utilities = pool_of(3, updates).utilities([0, 1, 2])
    # (0.01/20.01, 1, 10.01/20.01) + √(0.1 · 1.609438 / (1, 4, 2)), the last one · (1/4)²
    assert utilities == pytest.approx([0.401678, 1.200589, 0.048995], abs=1e-5)


def test_outliers_are_cut_to_the_quantile():
    losses = [1.0] * 49 + [2.0, 1000.0]
    utilities = pool_of(51, [update(client, 0, loss) for client, loss in enumerate(losses)]).utilities(range(51))
    assert utilities[50] == utilities[0]


def test_only_the_most_useful_are_picked_in_proportion_to_their_utility():
    exploits = {"exploration": (0.0, 1.0, 0.0)}
    losses = [update(client, 0, loss) for client, loss in enumerate((1.0, 1.99, 2.0))]
    assert shares(pool_of(4, losses, **exploits)) == pytest.approx([0, 0.5, 0.5, 0], abs=0.05)
    # √(0.1 ln 2) = 0.263, so the utilities are 0.264, 1.254 and 1.263.
    low = pool_of(4, losses, **exploits, cut_off=0.0)
    assert shares(low) == pytest.approx([0.264 / 2.781, 1.254 / 2.781, 1.263 / 2.781, 0], abs=0.05)


def test_unknown_clients_are_explored_less_and_less_often():
    for version, expected in ((0, 0.9 * 0.98**2), (30, 0.9 * 0.98**32), (500, 0.2)):
        known = [update(0, version, 1.0)]
        one, *others = shares(pool_of(3, known))
        assert one == pytest.approx(1 - expected, abs=0.05)
        assert others == pytest.approx([expected / 2] * 2, abs=0.05)


def test_clients_without_times_are_not_slow():
    updates = [update(0, 0, 2.0)._replace(step_seconds=None, upload_seconds=None), update(1, 0, 1.0, seconds=9.0)]
    utilities = pool_of(2, updates).utilities([0, 1])
    assert utilities[0] > 1


def test_a_pick_again_and_a_restart_lead_to_the_same_picks():
    updates = [update(client, client, 1.0 + client) for client in range(6)]
    pool, again = pool_of(12, updates), pool_of(12, updates)
    for number in range(8):
        again.take(pool.pick())
        if number == 4:
            restored = OORT.OortPool(12, seed=3)
            restored.load_state_dict(again.state_dict())
            again = restored
    assert again.inside == pool.inside
    assert [pool.pick() for _ in range(4)] == [again.pick() for _ in range(4)]


def test_the_algorithm_keeps_the_contract():
    check_algorithm(lambda: OORT.OortFedAvg(cohort=3), clients=8)


def test_rounds_go_to_the_clients_with_a_high_loss():
    plan = LocalPlan(steps=5, batch_size=1, lr=0.1)
    coordinator = Coordinator(OORT.OortFedAvg(cohort=2), torch.zeros(1), clients=12, local=plan, seed=5)
    for client in range(12):
        coordinator.present(0.0, client)
    counts = [0] * 12
    for now in range(400):
        for one in coordinator.assign(now):
            counts[one.client] += now >= 200  # all are known by then
            loss = 4.0 if one.client in (2, 7) else 1.0
            report = {"examples": 10, "steps": 5, "normaliser": 5.0, "loss": loss}
            assert coordinator.receive(now, one.client, one.visit, torch.zeros(1), **report).counted
            coordinator.present(now, one.client)
    assert coordinator.algorithm.version == 400
    assert [client for client, count in enumerate(counts) if count > 100] == [2, 7]
