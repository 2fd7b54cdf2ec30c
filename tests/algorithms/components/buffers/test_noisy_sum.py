import math

import pytest
import torch

from offbeat.algorithms import FADAS, FedAvg, FedBuff, FedNova
from offbeat.algorithms.components import LocalPlan
from offbeat.algorithms.components.buffers.noisy_sum import noisy
from offbeat.algorithms.components.staleness import constant, polynomial

PLAN = LocalPlan(steps=1, batch_size=1, lr=0.1)


def rising(number):
    """The noise of a release: its number, in each entry."""
    return torch.full((2,), float(number))


def started(algorithm, noise=rising, clip_norm=5.0, least=1):
    algorithm.wrap(noisy(clip_norm=clip_norm, noise=noise, least=least))
    algorithm.start(torch.zeros(2), 9)
    for client in range(min(4, algorithm.slots())):
        algorithm.assign(client, PLAN)
    return algorithm


@pytest.fixture
def send(upload):
    def send(algorithm, client, *entries, plan=PLAN, normaliser=1.0):
        update = upload(client, 0, *entries)
        return algorithm.receive(update._replace(plan=plan, steps=plan.steps, normaliser=normaliser))

    return send


def test_updates_are_clipped_and_each_release_has_the_noise_of_its_number(send):
    algorithm = started(FedBuff(buffer_size=2, staleness=constant()))
    send(algorithm, 0, 6, 8)  # to (3, 4)
    send(algorithm, 1, 0, 1)
    assert algorithm.model.tolist() == [-(3 + 1) / 2, -(5 + 1) / 2]
    send(algorithm, 2, 0, 0)
    send(algorithm, 3, 0, 0)
    assert algorithm.model.tolist() == [-2 - 2 / 2, -3 - 2 / 2]


@pytest.mark.parametrize("entry", [math.nan, math.inf, -math.inf])
def test_an_update_that_is_not_finite_counts_as_zeros(send, entry):
    """Refused, it would tell that its client's training diverged."""
    algorithm = started(FedBuff(buffer_size=2, staleness=constant()))
    send(algorithm, 0, 1, entry)
    send(algorithm, 1, 3, 4)
    assert algorithm.model.tolist() == [-(3 + 1) / 2, -(4 + 1) / 2]
    assert algorithm.refused_steps == {}


def test_a_noisy_sum_knows_its_oldest_update(send):
    algorithm = started(FADAS(buffer_size=1, server_lr=1.0, beta1=0, beta2=0, delay_bound=1), noise=None)
    for client in range(3):
        before = algorithm.model.clone()
        send(algorithm, client, 1, 1)
    assert algorithm.model.sub(before).tolist() == pytest.approx([-0.5, -0.5])  # η/τ_max with τ_max = 2


def test_noise_is_not_scaled_down_with_late_updates(send):
    algorithm = started(FedBuff(buffer_size=1, staleness=polynomial(a=1.0)))
    send(algorithm, 0, 0, 0)
    before = algorithm.model.clone()
    send(algorithm, 1, 3, 4)  # of staleness 1, so it counts a half
    assert (before - algorithm.model).tolist() == [1.5 + 2, 2 + 2]


def test_a_divided_update_is_clipped_after_the_division(send):
    algorithm = started(FedNova(cohort=1), noise=None)
    plan = LocalPlan(steps=4, batch_size=1, lr=0.1)
    send(algorithm, 0, 60, 80, plan=plan, normaliser=4.0)  # a direction of norm 25: clipped to 5, then four steps long
    torch.testing.assert_close(algorithm.model, torch.tensor([-12.0, -16.0]))


def test_an_update_that_weighs_more_than_one_is_refused(send, same_state):
    algorithm = started(FedBuff(buffer_size=2, staleness=lambda age: 1.0 + 2**-20))
    before = algorithm.state_dict()
    with pytest.raises(ValueError, match=r"an update weighs 1, at most 1 is private|weighs 1\.00000"):
        send(algorithm, 0, 1, 1)
    assert same_state(algorithm.state_dict(), before)


def test_too_few_updates_are_not_released(send):
    algorithm = started(FedAvg(cohort=2, weighting="uniform"), least=2, noise=None)
    send(algorithm, 0, 1, 1)
    algorithm.drop(1, 0)
    assert (algorithm.version, algorithm.round, algorithm.buffer.count) == (0, 1, 1)


def test_a_failing_noise_is_made_again_and_added_once(send):
    calls = []

    def fails_once(number):
        calls.append(number)
        if len(calls) == 1:
            raise OSError("full")
        return rising(number)

    algorithm = started(FedBuff(buffer_size=1, staleness=constant()), noise=fails_once)
    send(algorithm, 0, 1, 1)
    with pytest.raises(OSError, match="full"):
        _ = algorithm.model
    assert algorithm.model.tolist() == [-2, -2]
    assert calls == [1, 1]


def test_the_state_is_that_of_the_sum(send, same_state):
    algorithm = started(FedBuff(buffer_size=2))
    send(algorithm, 0, 6, 8)
    other = started(FedBuff(buffer_size=2))
    other.load_state_dict(algorithm.state_dict())
    send(algorithm, 1, 1, 1)
    send(other, 1, 1, 1)
    assert torch.equal(algorithm.model, other.model)
    assert math.isclose(algorithm.model[0].item(), -(3 + 1 + 1) / 2, rel_tol=1e-6)
