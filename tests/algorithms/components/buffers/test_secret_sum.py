import json

import numpy as np
import pytest
import torch

from offbeat.algorithms import FedAvg, FedBuff, FedNova
from offbeat.algorithms.components import LocalPlan, RunFacts, Sum, Update, Weight
from offbeat.algorithms.components.buffers.secret import SecretSum, secret
from offbeat.algorithms.components.weights import constant, polynomial

LARGEST = 2**31 - 1


def whole(*numbers):
    return torch.tensor(numbers, dtype=torch.int32)


def masked(client, *numbers, version=0):
    return Update(client, version, whole(*numbers), 1, 1, 1.0, share=bytes([client, 255]))


@pytest.fixture
def buffer():
    made = SecretSum(Sum("steps"), step=0.5, bound=10, least=2)
    made.start(RunFacts(2, 9))
    return made


def test_masked_vectors_add_up_modulo_two_to_the_32(buffer):
    buffer.add(masked(0, LARGEST, 5), Weight(1.0, steps=3))
    buffer.add(masked(1, 2, -7), Weight(2.0, steps=4))
    assert buffer.count == 2
    closed = buffer.release(0)
    assert buffer.masked_sum(closed).tolist() == [-LARGEST, -2]  # 2³¹ + 1 − 2³²
    assert (closed.sealed, closed.count, closed.weight, closed.tallies) == (True, 2, 3.0, {"steps": 7})
    with pytest.raises(ValueError, match="a sealed sum has no total before it is revealed"):
        closed.total()
    assert (buffer.count, buffer.release(1).count) == (0, 0)


def test_an_opened_sum_is_worth_its_steps(buffer):
    buffer.add(masked(0, 1, 1, version=3), Weight(1.0, steps=3))
    opened = buffer.reveal(buffer.release(4), whole(10, -10))
    assert opened.total().tolist() == [5.0, -5.0]
    assert (opened.sealed, opened.version, opened.count, opened.tallies) == (False, 4, 1, {"steps": 3})
    assert opened.oldest == 3


def test_each_entry_of_a_long_sum_is_rounded_once():
    """Sums beyond 2²⁴ are not float32 numbers, and so need a product of doubles."""
    length, step = 200_003, 1e-6
    buffer = SecretSum(Sum(), step=step, bound=2**30, least=2)
    buffer.start(RunFacts(length, 9))
    numbers = torch.randint(-(2**30), 2**30, (length,), dtype=torch.int32, generator=torch.Generator().manual_seed(1))
    numbers[-1] = 2**30
    total = buffer.reveal(buffer.release(0), numbers).total()
    assert total.tolist() == np.float32(np.float64(step) * numbers.numpy()).tolist()


@pytest.mark.parametrize("wrong", [whole(11, 0), whole(0, -11), whole(-LARGEST - 1, 0)])
def test_a_sum_that_is_out_of_range_was_opened_with_a_wrong_mask(buffer, wrong):
    with pytest.raises(ValueError, match="the opened sum is out of range: a client's mask was wrong"):
        buffer.reveal(buffer.release(0), wrong)


@pytest.mark.parametrize("wrong", [torch.zeros(2), whole(1, 2, 3)])
def test_a_sum_of_another_form_is_refused(buffer, wrong):
    with pytest.raises(ValueError, match=r"the vector must be int32 of shape \(2,\)"):
        buffer.reveal(buffer.release(0), wrong)


def test_an_update_in_the_clear_is_refused_and_changes_nothing(buffer, upload, same_state):
    before = buffer.state_dict()
    with pytest.raises(ValueError, match="this run takes masked updates only: send a share"):
        buffer.add(upload(0, 0, 1, 2), Weight(1.0, steps=1))
    assert same_state(buffer.state_dict(), before)


def through_json(state):
    plain = {key: value for key, value in state.items() if not isinstance(value, torch.Tensor)}
    return state | json.loads(json.dumps(plain))


def test_open_and_sealed_sums_survive_a_restart(buffer, same_state):
    buffer.add(masked(3, LARGEST, 1, version=2), Weight(1.5, steps=3))
    buffer.add(masked(4, 1, 1, version=1), Weight(1.0, steps=2))
    sealed = buffer.release(7)
    buffer.add(masked(5, -3, 4), Weight(0.5, steps=1))
    other = SecretSum(Sum("steps"), step=0.5, bound=10, least=2)
    other.start(RunFacts(2, 9))
    other.load_state_dict(through_json(buffer.state_dict()))
    assert same_state(other.state_dict(), buffer.state_dict())
    loaded = other.sealed_from(through_json(buffer.sealed_state(sealed)))
    assert same_state(other.sealed_state(loaded), buffer.sealed_state(sealed))
    assert [(e.update.client, e.update.version, e.update.share) for e in loaded.entries] == [
        (3, 2, b"\x03\xff"),
        (4, 1, b"\x04\xff"),
    ]
    assert torch.equal(other.masked_sum(loaded), whole(-LARGEST - 1, 2))
    assert (loaded.version, loaded.weight, loaded.tallies, loaded.oldest) == (7, 2.5, {"steps": 5}, 1)
    assert other.release(8).tallies == {"steps": 1}


def test_too_few_updates_wait_for_the_next_round(plan):
    algorithm = FedAvg(cohort=3, weighting="uniform")
    algorithm.wrap(secret(step=1.0, bound=100, least=2))
    algorithm.start(torch.zeros(1), 9)
    for client in range(3):
        algorithm.assign(client, plan)
    algorithm.receive(masked(0, 4))
    assert not algorithm.drop(1, 0)
    assert not algorithm.drop(2, 0)
    assert (algorithm.round, len(algorithm.sealed), algorithm.buffer.count) == (1, 0, 1)
    for client in range(3, 6):
        algorithm.assign(client, plan)
        algorithm.receive(masked(client, client))
    (closed,) = algorithm.sealed
    assert closed.count == 4
    algorithm.reveal(algorithm.buffer.masked_sum(closed))
    assert algorithm.model.tolist() == [-(4 + 3 + 4 + 5) / 4]


def test_a_discarded_sum_leaves_the_model_and_lets_the_run_go_on(plan, same_state):
    for algorithm in (FedBuff(buffer_size=2, concurrency=2), FedAvg(cohort=2, weighting="uniform")):
        algorithm.wrap(secret(step=1.0, bound=100, least=2))
        algorithm.start(torch.zeros(1), 9)
        with pytest.raises(ValueError, match="no sum is sealed"):
            algorithm.discard()
        for turn in range(2):
            for client in (2 * turn, 2 * turn + 1):
                algorithm.assign(client, plan)
                algorithm.receive(masked(client, 4, version=algorithm.version))
            if turn == 0:
                assert (algorithm.released, algorithm.opened) == (1, 0)
                algorithm.discard()
                assert (algorithm.version, algorithm.released, algorithm.opened) == (0, 1, 1)
                state = algorithm.state_dict()
                algorithm.load_state_dict(through_json(state))
                assert same_state(algorithm.state_dict(), state)
        assert algorithm.slots() == (2 if algorithm.name == "fedbuff" else 0)
        algorithm.reveal(whole(8))
        assert (algorithm.model.tolist(), algorithm.version, algorithm.opened) == ([-4.0], 1, 2)


def test_the_scale_is_the_weight_after_the_division():
    plan = LocalPlan(steps=4, batch_size=1, lr=0.1)
    late = Update(0, 0, torch.zeros(1), 1, 4, 4.0, plan=plan)
    fedbuff = FedBuff(staleness=polynomial(a=0.5))
    fedbuff.start(torch.zeros(1), 9)
    fedbuff._version = 3
    assert fedbuff.scale(late) == 0.5
    assert fedbuff.divisor(plan) == 1.0
    constant_one = FedBuff(staleness=constant())
    constant_one.start(torch.zeros(1), 9)
    assert constant_one.scale(late) == 1.0
    fednova = FedNova(cohort=1)
    fednova.start(torch.zeros(1), 9)
    assert fednova.divisor(plan) == 4.0  # a of four plain steps
    assert fednova.scale(late) == 1.0


def test_a_refused_update_is_taken_out_of_its_sum(buffer):
    for client in range(3):
        buffer.add(masked(client, 10**client, 1), Weight(1.0 + client, steps=client))
    closed = buffer.release(5)
    with pytest.raises(ValueError, match="client 7 is not in the sealed sum"):
        buffer.without(closed, 7)
    left = buffer.without(closed, 1)
    assert buffer.masked_sum(left).tolist() == [101, 2]
    assert (left.version, left.count, left.weight, left.tallies, buffer.count) == (5, 2, 4.0, {"steps": 2}, 0)
    buffer.add(masked(8, 5, 5), Weight(1.0, steps=8))
    assert buffer.without(left, 0) is None  # one is left, and a sum needs two
    again = buffer.release(6)
    assert [entry.update.client for entry in again.entries] == [2, 8]
    assert again.tallies == {"steps": 10}


def test_a_run_goes_on_after_a_refused_update(plan):
    algorithm = FedBuff(buffer_size=3, concurrency=9, staleness=constant())
    algorithm.wrap(secret(step=1.0, bound=100, least=2))
    algorithm.start(torch.zeros(1), 9)
    for client in range(8):
        algorithm.assign(client, plan)
    for client in range(8):
        algorithm.receive(masked(client, client))
    assert [closed.count for closed in algorithm.sealed] == [3, 3]
    algorithm.withdraw(0)
    assert ([closed.count for closed in algorithm.sealed], algorithm.released) == ([2, 3], 2)
    algorithm.withdraw(1)  # client 2 is left: it joins 6 and 7, which makes a sum
    assert [[e.update.client for e in closed.entries] for closed in algorithm.sealed] == [[3, 4, 5], [2, 6, 7]]
    while algorithm.sealed:
        algorithm.reveal(algorithm.buffer.masked_sum(algorithm.sealed[0]))
    assert algorithm.model.tolist() == [-(12 + 15) / 3]
    with pytest.raises(ValueError, match="no sum is sealed"):
        algorithm.withdraw(3)


def test_a_round_goes_on_after_a_refused_update(plan):
    algorithm = FedAvg(cohort=2, weighting="uniform")
    algorithm.wrap(secret(step=1.0, bound=100, least=2))
    algorithm.start(torch.zeros(1), 9)
    for client in range(2):
        algorithm.assign(client, plan)
        algorithm.receive(masked(client, client + 1))
    assert (algorithm.slots(), len(algorithm.sealed)) == (0, 1)
    algorithm.withdraw(0)
    assert (algorithm.round, algorithm.slots(), len(algorithm.sealed), algorithm.buffer.count) == (1, 2, 0, 1)
    for client in range(2, 4):
        algorithm.assign(client, plan)
        algorithm.receive(masked(client, client + 1))
    algorithm.reveal(algorithm.buffer.masked_sum(algorithm.sealed[0]))
    assert algorithm.model.tolist() == [-(2 + 3 + 4) / 3]
