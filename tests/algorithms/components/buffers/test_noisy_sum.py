import hashlib
import math
from struct import pack

import numpy as np
import pytest
import torch
from offbeat_private.noise.noise_rows import NoiseSource

from offbeat.algorithms import FADAS, FedAvg, FedBuff, FedNova
from offbeat.algorithms.components import LocalPlan
from offbeat.algorithms.components.buffers.noisy_sum import noisy
from offbeat.algorithms.components.client_update import Update
from offbeat.algorithms.components.weights import constant, polynomial
from offbeat.whole_numbers import Grid, WholeNumbers

PLAN = LocalPlan(steps=1, batch_size=1, lr=0.1)


STEP = 2.0**-10
GRID = Grid(clip_norm=5.0, largest=5 * 2**10)


class Rising:
    """Noise whose values are those of the release's number, and which records what it is bound to."""

    rows = 3

    def __init__(self, failures=()):
        self.failures = list(failures)
        self.calls = []

    def noise(self, number, digests):
        self.calls.append((number, list(digests)))
        if self.failures:
            raise self.failures.pop()
        return np.full(2, number * 2**10)


def whole(update, divisor, scale):
    return WholeNumbers(update.vector, GRID, divisor, scale, bytes([update.client]) * 32)


def started(algorithm, noise=None, least=1):
    algorithm.wrap(noisy(step=STEP, whole=whole, noise=noise, least=least))
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
    algorithm = started(FedBuff(buffer_size=2, staleness=constant()), Rising())
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
    assert algorithm.model.tolist() == [-3 / 2, -4 / 2]
    assert algorithm.refused_steps == {}


def test_a_noisy_sum_knows_its_oldest_update(send):
    algorithm = started(FADAS(buffer_size=1, server_lr=1.0, beta1=0, beta2=0, delay_bound=1))
    for client in range(3):
        before = algorithm.model.clone()
        send(algorithm, client, 1, 1)
    assert algorithm.model.sub(before).tolist() == pytest.approx([-0.5, -0.5])  # η/τ_max with τ_max = 2


def test_noise_is_not_scaled_down_with_late_updates(send):
    algorithm = started(FedBuff(buffer_size=1, staleness=polynomial(a=1.0)), Rising())
    send(algorithm, 0, 0, 0)
    before = algorithm.model.clone()
    send(algorithm, 1, 3, 4)  # of staleness 1, so it counts a half
    assert (before - algorithm.model).tolist() == [1.5 + 2, 2 + 2]


def test_a_divided_update_is_clipped_after_the_division(send):
    algorithm = started(FedNova(cohort=1))
    plan = LocalPlan(steps=4, batch_size=1, lr=0.1)
    send(algorithm, 0, 60, 80, plan=plan, normaliser=4.0)  # a direction of norm 25: clipped to 5, then four steps long
    torch.testing.assert_close(algorithm.model, torch.tensor([-12.0, -16.0]))


def test_an_update_that_weighs_more_than_one_is_refused(send, same_state):
    algorithm = started(FedBuff(buffer_size=2, staleness=lambda age: 1.0 + 2**-20))
    before = algorithm.state_dict()
    with pytest.raises(ValueError, match=r"would count 1 times|would count 1\.00000"):
        send(algorithm, 0, 1, 1)
    assert same_state(algorithm.state_dict(), before)


def test_too_few_updates_are_not_released(send):
    algorithm = started(FedAvg(cohort=2, weighting="uniform"), least=2)
    send(algorithm, 0, 1, 1)
    algorithm.drop(1, 0)
    assert (algorithm.version, algorithm.round, algorithm.buffer.count) == (0, 1, 1)


def test_a_failing_noise_is_made_again_and_added_once(send):
    noise = Rising([OSError("full")])
    algorithm = started(FedBuff(buffer_size=1, staleness=constant()), noise)
    send(algorithm, 0, 1, 1)
    with pytest.raises(OSError, match="full"):
        _ = algorithm.model
    assert algorithm.model.tolist() == [-2, -2]
    assert len(noise.calls) == 2
    assert noise.calls[0] == noise.calls[1]


def chain(*sums):
    """Return digests, each of a sum and of all before it."""
    digests = [b""]
    for steps in sums:
        content = hashlib.sha256(pack(f"<{len(steps)}q", *steps)).digest()
        digests.append(hashlib.sha256(digests[-1] + content).digest())
    return digests[1:]


def test_noise_is_bound_to_the_sum_and_to_those_before_it_also_after_a_restart(send):
    noise = Rising()
    algorithm = started(FedBuff(buffer_size=1, staleness=constant()), noise)
    sums = chain(*((1024 * n, -1024) for n in range(1, 5)))
    for n in (1, 2, 3):
        send(algorithm, n - 1, n, -1)
    state, other_noise = algorithm.state_dict(), Rising()
    restored = started(FedBuff(buffer_size=1, staleness=constant()), other_noise)
    restored.load_state_dict(state)
    send(restored, 3, 4, -1)
    _ = restored.model
    assert noise.calls == [(1, sums[:1]), (2, sums[:2]), (3, sums[:3])]
    assert other_noise.calls == [(4, sums[:4])]  # the last three, and the one that these follow


def test_another_sum_under_the_same_number_is_told_to_the_noise(send):
    """A restored copy of a server may get other updates for a version that has been released before."""
    calls = []
    for entry in (1.0, 1.0 + STEP):
        noise = Rising()
        algorithm = started(FedBuff(buffer_size=2, staleness=constant()), noise)
        send(algorithm, 0, entry, 0)
        send(algorithm, 1, 2, 0)
        _ = algorithm.model
        calls.append(noise.calls)
    assert calls == [[(1, chain((3 * 1024, 0)))], [(1, chain((3 * 1024 + 1, 0)))]]


@pytest.mark.parametrize("bands", [1, 2])
def test_after_one_different_sum_two_copies_share_no_noise(send, bands):
    """Bound to its own sum alone, G_2 would be the same in both: c̃_0 G_2 + c̃_1 G_1 would show the difference of G_1."""
    noises = []
    for entry in (1.0, 1.0 + STEP):
        source = NoiseSource(bytes(32), 2, noise_multiplier=5.0, largest=GRID.largest, separation=bands, bands=bands)
        algorithm = started(FedBuff(buffer_size=1, staleness=constant()), source)
        send(algorithm, 0, entry, 0)
        first = algorithm.model.clone()
        send(algorithm, 1, 2, 0)
        second = algorithm.model - first
        noises.append(torch.stack([first + torch.tensor([entry, 0]), second + torch.tensor([2.0, 0])]) / STEP)
    apart = noises[0] - noises[1]
    assert apart.abs().min() > 4
    assert (apart[0] + 2 * apart[1]).abs().min() > 4


@pytest.mark.parametrize("rows", [1, 3])
def test_a_step_that_failed_after_its_noise_gets_the_same_noise(send, rows):
    noise = Rising()
    noise.rows = rows
    algorithm = started(FedBuff(buffer_size=1, staleness=constant()), noise)
    send(algorithm, 0, 1, 1)
    _ = algorithm.model
    closed = algorithm.buffer._total(1)
    first, again = closed(), closed()
    assert torch.equal(first, again)
    assert noise.calls[1] == noise.calls[2]


def test_models_are_whole_numbers_of_steps(send):
    """Whatever floats the updates are."""
    random = np.random.default_rng(0)
    algorithm = started(FedBuff(buffer_size=2, staleness=polynomial()), Rising())
    for client in range(4):
        send(algorithm, client, *random.standard_normal(2))
        steps = algorithm.model * (2 / STEP)
        assert torch.equal(steps, steps.round())


def test_a_release_is_a_function_of_the_whole_sum_with_its_noise():
    """Sum and noise that become floats before they are added would be rounded twice, which tells the sum."""
    length, grid = 1000, Grid(clip_norm=5.0, largest=2**19 - 1)

    def on_grid(update, divisor, scale):
        return WholeNumbers(update.vector, grid, divisor, scale, bytes(32))

    algorithm = FedBuff(buffer_size=1, staleness=constant())
    noise = NoiseSource(bytes(32), length, noise_multiplier=5.0, largest=grid.largest)
    algorithm.wrap(noisy(step=grid.step, whole=on_grid, noise=noise, least=1))
    algorithm.start(torch.zeros(length), 1)
    algorithm.assign(0, PLAN)
    vector = torch.from_numpy(np.random.default_rng(0).standard_normal(length).astype(np.float32))
    algorithm.receive(Update(0, 0, vector, 1, 1, 1.0, plan=PLAN))
    released = -algorithm.model
    whole_sum = (released.double() / grid.step).round()
    assert whole_sum.abs().max() > 2**20
    assert torch.equal(released, (whole_sum * grid.step).float())


def test_the_state_is_that_of_the_sum(send):
    algorithm = started(FedBuff(buffer_size=2))
    send(algorithm, 0, 6, 8)
    other = started(FedBuff(buffer_size=2))
    other.load_state_dict(algorithm.state_dict())
    send(algorithm, 1, 1, 1)
    send(other, 1, 1, 1)
    assert torch.equal(algorithm.model, other.model)
    assert algorithm.model.tolist() == [-(3 + 1) / 2, -(4 + 1) / 2]
