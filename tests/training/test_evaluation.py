from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from offbeat.training.evaluation import Evaluator
from offbeat.training.flat_model import FlatModel
from offbeat.training.models import initial_randomness

EXAMPLES = 4500  # more than two batches, and the last is smaller


@pytest.fixture(scope="module")
def examples() -> Tensor:
    return torch.from_numpy(np.random.default_rng(4).normal(size=(EXAMPLES, 6)).astype(np.float32))


@pytest.fixture(scope="module")
def answers() -> Tensor:
    return torch.from_numpy(np.random.default_rng(5).integers(4, size=EXAMPLES))


def test_equals_one_pass_over_everything(network: Callable[..., nn.Module], examples: Tensor, answers: Tensor) -> None:
    module = network()
    with torch.no_grad():
        outputs = module(examples).double().numpy()
    right = answers.numpy()
    losses = np.log(np.exp(outputs).sum(axis=1)) - outputs[np.arange(EXAMPLES), right]
    accuracy = (outputs.argmax(axis=1) == right).mean()
    evaluate = Evaluator(FlatModel(network()), loss=cross_entropy, inputs=examples, labels=answers)
    measured = evaluate(nn.utils.parameters_to_vector(module.parameters()).detach())
    assert measured[0] == pytest.approx(losses.mean(), abs=1e-6)
    assert measured[1] == accuracy
    assert all(isinstance(value, float) for value in measured)


def test_a_smaller_last_batch_counts_by_its_size() -> None:
    """Right in the first 2,048 examples and wrong in the last: 2,048 / 2,049, not one half."""
    inputs = torch.ones(2049, 1)
    labels = torch.ones(2049, dtype=torch.int64)
    labels[-1] = 0
    with initial_randomness(1):
        model = FlatModel(nn.Linear(1, 2, bias=False))
    evaluate = Evaluator(model, loss=lambda _, labels: labels.float().mean(), inputs=inputs, labels=labels)
    loss, accuracy = evaluate(torch.tensor([-1.0, 1.0]))
    assert accuracy == 2048 / 2049
    assert loss == pytest.approx(2048 / 2049)


def test_measures_the_vector_it_is_given_and_leaves_it_alone(
    network: Callable[..., nn.Module], examples: Tensor, answers: Tensor
) -> None:
    model = FlatModel(network())
    evaluate = Evaluator(model, loss=cross_entropy, inputs=examples, labels=answers)
    zero = torch.zeros(59)
    # All classes are equally likely at 0, and the first of equals is taken.
    assert evaluate(zero) == (pytest.approx(np.log(4), abs=1e-6), (answers == 0).double().mean().item())
    assert not zero.any()
    ramp = torch.arange(59.0)
    other = evaluate(ramp)
    assert other[0] > 2 * np.log(4)
    assert evaluate(zero) == (pytest.approx(np.log(4), abs=1e-6), (answers == 0).double().mean().item())
    assert evaluate(ramp) == other


def test_dropout_is_off(network: Callable[..., nn.Module], examples: Tensor, answers: Tensor) -> None:
    model, plain = FlatModel(network(dropout=0.9)), FlatModel(network())
    model.module.train()
    vector = plain.vector.clone()
    with_dropout = Evaluator(model, loss=cross_entropy, inputs=examples, labels=answers)
    without = Evaluator(plain, loss=cross_entropy, inputs=examples, labels=answers)
    assert with_dropout(vector) == without(vector)


def test_training_goes_on_after_it(network: Callable[..., nn.Module], examples: Tensor, answers: Tensor) -> None:
    """Nothing of the evaluation is left that autograd refuses."""
    model = FlatModel(network())
    Evaluator(model, loss=cross_entropy, inputs=examples, labels=answers)(model.vector.clone())
    model.module(examples[:2]).sum().backward()
    assert model.gradient.count_nonzero() > 0
