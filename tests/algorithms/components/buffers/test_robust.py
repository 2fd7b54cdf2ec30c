import itertools

import numpy as np
import pytest
import torch

from offbeat.algorithms import AsyncCommSGD, FedAvg, FedBuff, FedDyn, FedFa, FedLuck, FedNova
from offbeat.algorithms.components.buffers.robust import RULES, krum, robust, trimmed_mean


def updates_of(seed, number, length=4):
    return torch.tensor(np.random.default_rng(seed).standard_normal((number, length)), dtype=torch.float32)


def test_the_extremes_of_each_coordinate_are_left_out_by_hand():
    updates = torch.tensor([[1.0, 50], [2, 3], [3, 1], [400, 2], [-9, -70]])  # n = 5, f = 1
    assert trimmed_mean(updates).tolist() == [2, 2]


def test_krum_takes_the_update_in_the_densest_place_by_hand():
    updates = torch.tensor([[0.0], [1], [1.5], [9], [-20]])  # n = 5, f = 1: two nearest others each
    # Sums of the two smallest squared distances: 1 + 2.25, 1 + 0.25, 0.25 + 2.25, 56.25 + 64, 400 + 441.
    assert krum(updates).tolist() == [1]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("number", [3, 4, 5, 6, 9])
def test_krum_agrees_with_a_search_over_all_neighbourhoods(seed, number):
    updates = updates_of(seed, number)
    tolerated = (number - 3) // 2
    rows = updates.double().numpy()

    def score(place):
        others = [float(((rows[place] - rows[other]) ** 2).sum()) for other in range(number) if other != place]
        return min(sum(chosen) for chosen in itertools.combinations(others, number - tolerated - 2))

    assert torch.equal(krum(updates), updates[min(range(number), key=score)])


@pytest.mark.parametrize("rule", RULES.values())
@pytest.mark.parametrize("number", [5, 7, 11])
def test_malicious_updates_hardly_move_a_robust_mean(rule, number):
    honest = updates_of(1, number) * 0.1 + 1.0
    attacked = honest.clone()
    attacked[: (number - 3) // 2] = -1e6
    assert (rule(attacked) - 1.0).abs().max() < 0.5
    assert (attacked.mean(dim=0) - 1.0).abs().max() > 1e4


@pytest.mark.parametrize("rule", RULES.values())
@pytest.mark.parametrize("number", [1, 2])
def test_one_or_two_updates_are_averaged(rule, number):
    updates = updates_of(2, number)
    torch.testing.assert_close(rule(updates), updates.mean(dim=0))


@pytest.mark.parametrize(
    "make", [lambda: FedBuff(buffer_size=5, server_lr=0.5), lambda: FedAvg(cohort=5, server_lr=0.5)]
)
def test_the_step_is_the_robust_mean_times_server_lr_without_weights(make, plan, upload, vector):
    algorithm = make()
    algorithm.wrap(robust("trimmed_mean"))
    algorithm.start(vector(0, 0), clients=5)
    for client in range(5):
        algorithm.assign(client, plan)
    for client, delta in enumerate([(1, 50), (2, 3), (3, 1), (400, 2), (-9, -70)]):
        algorithm.receive(upload(client, 0, *delta, examples=1 + 10 * client))
    assert algorithm.model.tolist() == [-1, -1]


@pytest.mark.parametrize(
    "algorithm",
    [FedNova(), FedFa(), FedDyn(), AsyncCommSGD(), FedLuck(normalise=True)],
    ids=lambda algorithm: algorithm.name,
)
def test_a_robust_mean_replaces_only_a_plain_mean(algorithm):
    with pytest.raises(ValueError, match=f"aggregate = 'krum' does not go with {algorithm.name}"):
        algorithm.wrap(robust("krum"))
