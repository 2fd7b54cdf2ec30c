from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from offbeat.errors import OffbeatError
from offbeat.training.evaluation import Evaluator
from offbeat.training.flat_model import FlatModel
from offbeat.training.models import initial_randomness
from offbeat.training.objectives import accuracy

ACCURACY = {"accuracy": accuracy}

EXAMPLES = 4500  # more than two batches, and the last is smaller


@pytest.fixture(scope="module")
def examples() -> Tensor:
    return torch.from_numpy(np.random.default_rng(4).normal(size=(EXAMPLES, 6)).astype(np.float32))


@pytest.fixture(scope="module")
def answers() -> Tensor:
    return torch.from_numpy(np.random.default_rng(5).integers(4, size=EXAMPLES))


def test_equals_one_pass_over_everything(network, examples, answers):
    module = network()
    with torch.no_grad():
        outputs = module(examples).double().numpy()
    right = answers.numpy()
    losses = np.log(np.exp(outputs).sum(axis=1)) - outputs[np.arange(EXAMPLES), right]
    share = (outputs.argmax(axis=1) == right).mean()
    evaluate = Evaluator(
        FlatModel(network()), loss=cross_entropy, metrics=ACCURACY, inputs=examples, labels=answers, seed=1
    )
    measured = evaluate(nn.utils.parameters_to_vector(module.parameters()).detach())
    assert measured[0] == pytest.approx(losses.mean(), abs=1e-6)
    assert measured[1] == {"accuracy": share}
    assert isinstance(measured[0], float)
    assert isinstance(measured[1]["accuracy"], float)


def test_a_smaller_last_batch_counts_by_its_size():
    """Right in the first 256 examples and wrong in the last two: 256 / 258, not one half."""
    inputs = torch.ones(258, 1)
    labels = torch.ones(258, dtype=torch.int64)
    labels[-2:] = 0
    with initial_randomness(1):
        model = FlatModel(nn.Linear(1, 2, bias=False))
    evaluate = Evaluator(
        model, loss=lambda _, labels: labels.float().mean(), metrics=ACCURACY, inputs=inputs, labels=labels, seed=1
    )
    loss, metrics = evaluate(torch.tensor([-1.0, 1.0]))
    assert metrics == {"accuracy": 256 / 258}
    assert loss == pytest.approx(256 / 258)


def test_measures_the_vector_it_is_given_and_leaves_it_alone(network, examples, answers):
    model = FlatModel(network())
    evaluate = Evaluator(model, loss=cross_entropy, metrics=ACCURACY, inputs=examples, labels=answers, seed=1)
    zero = torch.zeros(59)
    # All classes are equally likely at 0, and the first of equals is taken.
    assert evaluate(zero) == (pytest.approx(np.log(4), abs=1e-6), {"accuracy": int((answers == 0).sum()) / EXAMPLES})
    assert not zero.any()
    ramp = torch.arange(59.0)
    other = evaluate(ramp)
    assert other[0] > 2 * np.log(4)
    assert evaluate(zero) == (pytest.approx(np.log(4), abs=1e-6), {"accuracy": int((answers == 0).sum()) / EXAMPLES})
    assert evaluate(ramp) == other


def test_dropout_is_off(network, examples, answers):
    model, plain = FlatModel(network(dropout=0.9)), FlatModel(network())
    model.module.train()
    vector = plain.vector.clone()
    with_dropout = Evaluator(model, loss=cross_entropy, metrics=ACCURACY, inputs=examples, labels=answers, seed=1)
    without = Evaluator(plain, loss=cross_entropy, metrics=ACCURACY, inputs=examples, labels=answers, seed=1)
    assert with_dropout(vector) == without(vector)


def test_training_goes_on_after_it(network, examples, answers):
    """Nothing of the evaluation is left that autograd refuses."""
    model = FlatModel(network())
    Evaluator(model, loss=cross_entropy, metrics=ACCURACY, inputs=examples, labels=answers, seed=1)(
        model.vector.clone()
    )
    model.module(examples[:2]).sum().backward()
    assert model.gradient.count_nonzero() > 0


@pytest.mark.parametrize("examples", [1, 2, 255, 256, 257, 258, 512, 513, 750])
def test_every_example_counts_once_and_none_alone(examples):
    """Alone in a batch, an example could not be normalised by it."""
    sizes: list[int] = []

    class Looking(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            sizes.append(len(inputs))
            return super().forward(inputs)

    with initial_randomness(1):
        model = FlatModel(Looking(1, 1, bias=False))
    inputs = torch.arange(float(examples))[:, None]
    evaluate = Evaluator(
        model,
        loss=lambda outputs, _: outputs.mean(),
        metrics={"same": lambda outputs, labels: float(torch.equal(outputs, labels))},
        inputs=inputs,
        labels=inputs,
        seed=1,
    )
    assert evaluate(torch.ones(1)) == (pytest.approx((examples - 1) / 2), {"same": 1.0})
    assert sum(sizes) == examples
    assert max(sizes) <= 2049
    assert min(sizes) > 1 or examples == 1


class TestMetrics:
    @pytest.fixture
    def measure(self, network, examples, answers):
        """Return a function that evaluates the small network with the metrics given by name."""

        def run(loss=cross_entropy, **metrics):
            model = FlatModel(network())
            evaluate = Evaluator(model, loss=loss, metrics=metrics, inputs=examples, labels=answers, seed=1)
            return evaluate(model.vector.clone())

        return run

    def test_none_are_needed(self, measure):
        loss, metrics = measure()
        assert loss > 0
        assert metrics == {}

    def test_without_them_outputs_need_not_be_a_tensor(self, examples, answers):
        class Pair(nn.Linear):
            def forward(self, inputs: Tensor) -> Any:
                return super().forward(inputs), None

        with initial_randomness(1):
            model = FlatModel(Pair(6, 4))

        def loss(outputs: Any, labels: Tensor) -> Tensor:
            return cross_entropy(outputs[0], labels)

        assert (
            Evaluator(model, loss=loss, metrics={}, inputs=examples, labels=answers, seed=1)(model.vector.clone())[0]
            > 0
        )
        evaluate = Evaluator(model, loss=loss, metrics=ACCURACY, inputs=examples, labels=answers, seed=1)
        with pytest.raises(OffbeatError, match=r"the metrics need the model's outputs as one tensor, but .* a tuple"):
            evaluate(model.vector.clone())

    def test_each_sees_all_outputs_and_labels_at_once(self, measure, network, examples, answers):
        seen: list[tuple[Tensor, Tensor]] = []

        def metric(outputs: Tensor, labels: Tensor) -> float:
            seen.append((outputs.clone(), labels.clone()))
            return len(seen)

        assert measure(one=metric, two=metric)[1] == {"one": 1.0, "two": 2.0}
        for outputs, labels in seen:
            torch.testing.assert_close(outputs, network()(examples).detach(), rtol=0, atol=1e-5)
            assert torch.equal(labels, answers)

    @pytest.mark.parametrize("value", [2.5, np.float32(2.5), np.float64(2.5), torch.tensor(2.5), torch.tensor([[2.5]])])
    def test_one_number_of_any_kind_becomes_a_float(self, value, measure):
        result = measure(mine=lambda *_: value)[1]["mine"]
        assert result == 2.5
        assert type(result) is float

    @pytest.mark.parametrize(
        ("value", "found"),
        [
            (None, "a NoneType"),
            ("0.5", "a str"),
            ((0.5,), "a tuple"),
            (1j, "a complex"),
            (torch.zeros(2), r"a tensor of shape \(2,\)"),
            (torch.zeros(0), r"a tensor of shape \(0,\)"),
        ],
    )
    def test_anything_else_is_refused_with_the_name(self, value, found, measure):
        with pytest.raises(OffbeatError, match=f"the metric mine must be one number, but it is {found}"):
            measure(mine=lambda *_: value)

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, torch.tensor(np.nan)])
    def test_what_is_not_finite_is_refused_with_the_name(self, value, measure):
        with pytest.raises(OffbeatError, match=r"the metric mine is .*(nan|inf), which is not a finite number"):
            measure(mine=lambda *_: value)

    def test_a_metric_that_fails_is_named(self, measure):
        def metric(outputs: Tensor, labels: Tensor) -> float:
            raise KeyError("first\nsecond")

        with pytest.raises(OffbeatError, match="the metric mine failed: KeyError") as caught:
            measure(mine=metric)
        assert "\n" not in str(caught.value)

    def test_of_a_model_that_diverged_are_not_computed(self, measure):
        def fail(outputs: Tensor, labels: Tensor) -> float:
            raise AssertionError

        loss, metrics = measure(loss=lambda outputs, _: outputs.mean() * torch.inf, mine=fail)
        assert not np.isfinite(loss)
        assert list(metrics) == ["mine"]
        assert np.isnan(metrics["mine"])


@pytest.mark.parametrize(
    ("loss", "found"),
    [
        (lambda outputs, _: outputs, r"one of shape \(256, 4\)"),
        (lambda outputs, _: outputs.mean().reshape(1), r"one of shape \(1,\)"),
        (lambda outputs, _: outputs.mean().item(), "a float"),
        (lambda outputs, _: None, "a NoneType"),
    ],
)
def test_a_loss_that_is_not_a_scalar_is_refused(loss, found, network, examples, answers):
    model = FlatModel(network())
    evaluate = Evaluator(model, loss=loss, metrics={}, inputs=examples, labels=answers, seed=1)
    with pytest.raises(OffbeatError, match=rf"the loss must be .* a tensor of shape \(\), but it is {found}"):
        evaluate(model.vector.clone())


class InPlace(nn.Linear):
    """A layer that changes its inputs."""

    def forward(self, inputs: Tensor) -> Tensor:
        inputs -= 0.5
        return super().forward(inputs)


def test_nothing_reaches_the_test_set_or_another_metric(examples, answers):
    def loss(outputs: Tensor, labels: Tensor) -> Tensor:
        value = cross_entropy(outputs, labels)
        outputs.zero_()
        labels.zero_()
        return value

    def metric(outputs: Tensor, labels: Tensor) -> float:
        share = accuracy(outputs, labels)
        outputs.zero_()
        labels.zero_()
        return share

    with initial_randomness(1):
        model = FlatModel(InPlace(6, 4))
    inputs, labels = examples.clone(), answers.clone()
    metrics = {"one": metric, "two": metric}
    evaluate = Evaluator(model, loss=loss, metrics=metrics, inputs=inputs, labels=labels, seed=1)
    outputs = nn.functional.linear(examples - 0.5, model.module.weight, model.module.bias).detach()
    share = (outputs.argmax(dim=1) == answers).float().mean().item()
    for _ in range(2):
        value, measured = evaluate(model.vector.clone())
        assert value == pytest.approx(cross_entropy(outputs, answers).item(), abs=1e-6)
        assert measured == {"one": pytest.approx(share), "two": pytest.approx(share)}
        assert 0 < share < 1
    assert torch.equal(inputs, examples)
    assert torch.equal(labels, answers)


def test_what_is_drawn_depends_on_the_seed_alone(examples, answers):
    class Noisy(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            return nn.functional.dropout(super().forward(inputs), 0.5, training=True)

    with initial_randomness(1):
        model = FlatModel(Noisy(6, 4))
    before = torch.get_rng_state()

    def measure(seed: int, drawn: int) -> tuple[float, dict[str, float]]:
        evaluate = Evaluator(
            model,
            loss=cross_entropy,
            metrics={"random": lambda *_: torch.rand(()).item()},
            inputs=examples,
            labels=answers,
            seed=seed,
        )
        torch.rand(drawn)
        disturbed = torch.get_rng_state()
        result = evaluate(model.vector.clone())
        assert torch.equal(torch.get_rng_state(), disturbed)
        assert evaluate(model.vector.clone()) == result
        return result

    first = measure(seed=1, drawn=0)
    assert measure(seed=1, drawn=3) == first
    other = measure(seed=2, drawn=0)
    assert other[0] != first[0]
    assert other[1] != first[1]
    torch.set_rng_state(before)


class TestWhatFails:
    @pytest.fixture
    def failing(self, network, examples, answers):
        def run(loss: Callable[[Tensor, Tensor], Tensor]) -> str:
            model = FlatModel(network())
            evaluate = Evaluator(model, loss=loss, metrics={}, inputs=examples, labels=answers, seed=1)
            with pytest.raises(OffbeatError) as caught:
                evaluate(model.vector.clone())
            return str(caught.value)

        return run

    def test_is_said_in_one_line_with_its_place(self, failing):
        def loss(outputs: Tensor, labels: Tensor) -> Tensor:
            raise KeyError("odd label")

        line = loss.__code__.co_firstlineno + 1
        assert failing(loss) == (
            f"evaluation: the model or the loss failed: KeyError: 'odd label' ({Path(__file__)}:{line})"
        )
