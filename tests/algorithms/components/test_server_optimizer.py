import math

import numpy as np
import pytest
import torch

from offbeat.algorithms.components import RunFacts
from offbeat.algorithms.components.server_optimizer import ServerStep, adagrad, adam, momentum

OPTIMIZERS = [momentum(), momentum(0.0), adam(), adam(0.5, 0.9, 1e-8), adagrad(), adagrad(0.1, 1e-6)]


def started(optimizer, lr, length):
    step = ServerStep(optimizer, lr)
    step.start(RunFacts(length, clients=1))
    return step


def momentum_by_numpy(deltas, model, lr, beta):
    moment = np.zeros_like(model)
    for delta in deltas:
        moment = beta * moment + delta
        model = model - lr * moment
        yield model


def adam_by_numpy(deltas, model, lr, beta1, beta2, epsilon):
    first, second = np.zeros_like(model), np.zeros_like(model)
    for step, delta in enumerate(deltas, start=1):
        first = beta1 * first + (1 - beta1) * delta
        second = beta2 * second + (1 - beta2) * delta**2
        model = model - lr * (first / (1 - beta1**step)) / (np.sqrt(second / (1 - beta2**step)) + epsilon)
        yield model


def adagrad_by_numpy(deltas, model, lr, initial, epsilon):
    squares = np.full_like(model, initial)
    for delta in deltas:
        squares = squares + delta**2
        model = model - lr * delta / (np.sqrt(squares) + epsilon)
        yield model


@pytest.mark.parametrize(
    ("optimizer", "reference"),
    [
        (momentum(0.7), lambda deltas, model: momentum_by_numpy(deltas, model, 0.3, 0.7)),
        (adam(), lambda deltas, model: adam_by_numpy(deltas, model, 0.3, 0.9, 0.99, 1e-3)),
        (adam(0.5, 0.8, 1e-2), lambda deltas, model: adam_by_numpy(deltas, model, 0.3, 0.5, 0.8, 1e-2)),
        (adagrad(), lambda deltas, model: adagrad_by_numpy(deltas, model, 0.3, 0.0, 1e-3)),
        (adagrad(0.5, 1e-2), lambda deltas, model: adagrad_by_numpy(deltas, model, 0.3, 0.5, 1e-2)),
    ],
)
def test_twenty_steps_agree_with_numpy(optimizer, reference):
    deltas = np.random.default_rng(3).standard_normal((20, 4))
    start = np.array([1.0, -1.0, 0.5, 2.0])
    step, model = started(optimizer, 0.3, length=4), torch.tensor(start, dtype=torch.float32)
    for delta, expected in zip(deltas, reference(deltas, start), strict=True):
        model = step(model, torch.tensor(delta, dtype=torch.float32))
        np.testing.assert_allclose(model.numpy(), expected, rtol=1e-5, atol=2e-6)


def test_plain_step_by_hand(vector):
    assert started(None, 0.5, length=2)(vector(1, 1), vector(2, -4)).tolist() == [0, 3]


def test_momentum_by_hand(vector):
    step = started(momentum(0.5), 1.0, length=2)
    first = step(vector(10, 10), vector(2, -4))
    second = step(first, vector(2, 0))
    third = step(second, vector(0, 0))
    assert [model.tolist() for model in (first, second, third)] == [[8, 14], [5, 16], [3.5, 17]]


def test_first_step_of_adam_and_adagrad_by_hand(vector):
    adam_model = started(adam(epsilon=1.0), 0.5, length=2)(vector(1, 1), vector(3, -1))
    assert adam_model.tolist() == pytest.approx([1 - 0.5 * 3 / 4, 1 + 0.5 * 1 / 2], rel=1e-6)
    adagrad_model = started(adagrad(initial=16.0, epsilon=1.0), 0.5, length=1)(vector(1), vector(3))
    assert adagrad_model.tolist() == pytest.approx([1 - 0.5 * 3 / (5 + 1)], rel=1e-6)


@pytest.mark.parametrize("optimizer", [None, *OPTIMIZERS], ids=str)
def test_the_next_model_is_new_and_nothing_given_is_changed(optimizer, vector):
    step = started(optimizer, 0.1, length=2)
    model, delta = vector(1, 2), vector(3, -4)
    first = step(model, delta)
    kept = first.clone()
    second = step(first, vector(1, 1))
    assert model.tolist() == [1, 2]
    assert delta.tolist() == [3, -4]
    assert torch.equal(first, kept)
    assert second.data_ptr() != first.data_ptr()
    assert not second.requires_grad


@pytest.mark.parametrize("optimizer", [None, *OPTIMIZERS], ids=str)
@pytest.mark.parametrize("saved_after", [0, 1, 3])
def test_a_reloaded_step_goes_on_bit_for_bit(optimizer, saved_after, same_state):
    deltas = torch.tensor(np.random.default_rng(4).standard_normal((6, 9)), dtype=torch.float32)
    step, reloaded = started(optimizer, 0.1, length=9), started(optimizer, 0.1, length=9)
    model = torch.ones(9)
    for delta in deltas[:saved_after]:
        model = step(model, delta)
    state = step.state_dict()
    saved = {key: value.clone() for key, value in state.items()}
    reloaded.load_state_dict(state)
    other = model
    for delta in deltas[saved_after:]:
        model, other = step(model, delta), reloaded(other, delta)
        assert torch.equal(model, other)
    assert same_state(step.state_dict(), reloaded.state_dict())
    assert same_state(state, saved)


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
def test_a_step_that_starts_again_forgets_its_moments(optimizer, vector, same_state):
    fresh, used = started(optimizer, 0.1, length=2), started(optimizer, 0.1, length=2)
    used(vector(1, 2), vector(3, 4))
    used.start(RunFacts(2, clients=1))
    assert same_state(used.state_dict(), fresh.state_dict())
    assert torch.equal(used(vector(1, 1), vector(5, -6)), fresh(vector(1, 1), vector(5, -6)))


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (momentum, {"beta": 1.0}, r"beta must be in \[0, 1\), got 1.0"),
        (momentum, {"beta": -0.1}, "beta"),
        (momentum, {"beta": math.nan}, "beta"),
        (adam, {"beta1": 1.0}, "beta1"),
        (adam, {"beta2": 1.5}, "beta2"),
        (adam, {"epsilon": 0.0}, "epsilon must be greater than 0"),
        (adam, {"epsilon": math.nan}, "epsilon"),
        (adagrad, {"initial": -1.0}, "initial must not be negative"),
        (adagrad, {"epsilon": -1e-3}, "epsilon"),
    ],
)
def test_parameters_out_of_range_are_refused(make, arguments, message):
    with pytest.raises(ValueError, match=message):
        make(**arguments)
