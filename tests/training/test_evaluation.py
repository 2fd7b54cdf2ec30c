from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from offbeat_core.errors import OffbeatError
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from offbeat.training.batch_metrics import Perplexity
from offbeat.training.evaluation import Evaluator, label_metrics
from offbeat.training.flat_model import FlatModel
from offbeat.training.objectives import accuracy, model_loss
from tests.inputs_by_name import Plain, Sentences, named, sentences_of
from tests.training.conftest import made

ACCURACY = {"accuracy": accuracy}
EXAMPLES = 700  # more than two batches, and the last is smaller


@pytest.fixture(scope="module")
def examples() -> Tensor:
    return torch.from_numpy(np.random.default_rng(4).normal(size=(EXAMPLES, 6)).astype(np.float32))


@pytest.fixture(scope="module")
def answers() -> Tensor:
    return torch.from_numpy(np.random.default_rng(5).integers(4, size=EXAMPLES))


@pytest.fixture
def evaluator(network, examples, answers):
    """Return a function that makes an evaluator, by default of the small network."""

    def make(model=None, **more) -> Evaluator:
        world = {"loss": cross_entropy, "metrics": ACCURACY, "inputs": examples, "labels": answers, "seed": 1}
        return Evaluator(model or FlatModel(network()), **world | more)

    return make


@pytest.fixture
def measure(evaluator, network):
    """Return a function that evaluates the small network with the metrics given by name."""

    def run(loss=cross_entropy, **metrics):
        return evaluator(loss=loss, metrics=metrics)(FlatModel(network()).vector)

    return run


def test_equals_one_pass_over_everything(network, examples, answers, evaluator):
    module = network()
    with torch.no_grad():
        outputs = module(examples).double().numpy()
    right = answers.numpy()
    losses = np.log(np.exp(outputs).sum(axis=1)) - outputs[np.arange(EXAMPLES), right]
    share = (outputs.argmax(axis=1) == right).mean()
    loss, metrics = evaluator()(nn.utils.parameters_to_vector(module.parameters()).detach())
    assert loss == pytest.approx(losses.mean(), abs=1e-6)
    assert metrics == {"accuracy": share}
    assert type(loss) is type(metrics["accuracy"]) is float


def test_measures_the_vector_it_is_given_and_does_not_change_it(answers, evaluator):
    evaluate, zero, ramp = evaluator(), torch.zeros(59), torch.arange(59.0)
    # All classes are equally likely at 0, and the first of equals is taken.
    at_zero = pytest.approx(np.log(4), abs=1e-6), {"accuracy": int((answers == 0).sum()) / EXAMPLES}
    assert evaluate(zero) == at_zero
    assert not zero.any()
    other = evaluate(ramp)
    assert other[0] > 2 * np.log(4)
    assert evaluate(zero) == at_zero
    assert evaluate(ramp) == other


def test_dropout_is_off(network, evaluator):
    model, plain = FlatModel(network(dropout=0.9)), FlatModel(network())
    model.module.train()
    vector = plain.vector.clone()
    assert evaluator(model)(vector) == evaluator(plain)(vector)


@pytest.mark.parametrize("examples", [1, 2, 255, 256, 257, 258, 513, 750])
def test_every_example_counts_once_and_none_alone(examples, evaluator):
    """Alone in a batch, an example could not be normalised by it."""
    sizes: list[int] = []

    class Looking(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            sizes.append(len(inputs))
            return super().forward(inputs)

    inputs = torch.arange(float(examples))[:, None]
    evaluate = evaluator(
        made(lambda: FlatModel(Looking(1, 1, bias=False))),
        loss=lambda outputs, _: outputs.mean(),
        metrics={"same": lambda outputs, labels: float(torch.equal(outputs, labels))},
        inputs=inputs,
        labels=inputs,
    )
    assert evaluate(torch.ones(1)) == (pytest.approx((examples - 1) / 2), {"same": 1.0})
    assert sum(sizes) == examples
    assert max(sizes) <= 257
    assert min(sizes) > 1 or examples == 1


class TestMetrics:
    def test_without_them_outputs_need_not_be_a_tensor(self, evaluator):
        class Pair(nn.Linear):
            def forward(self, inputs: Tensor) -> Any:
                return super().forward(inputs), None

        model = made(lambda: FlatModel(Pair(6, 4)))
        options = {"loss": lambda outputs, labels: cross_entropy(outputs[0], labels)}
        loss, metrics = evaluator(model, **options, metrics={})(model.vector.clone())
        assert loss > 0
        assert metrics == {}
        with pytest.raises(OffbeatError, match=r"the metrics need the model's outputs as one tensor, but .* a tuple"):
            evaluator(model, **options)(model.vector.clone())

    def test_each_sees_all_outputs_and_labels_at_once(self, measure, network, examples, answers):
        seen: list[tuple[Tensor, Tensor]] = []

        def metric(outputs: Tensor, labels: Tensor) -> float:
            seen.append((outputs.clone(), labels.clone()))
            return len(seen)

        assert measure(one=metric, two=metric)[1] == {"one": 1.0, "two": 2.0}
        for outputs, labels in seen:
            torch.testing.assert_close(outputs, network()(examples).detach(), rtol=0, atol=1e-5)
            assert torch.equal(labels, answers)

    @pytest.mark.parametrize("value", [2.5, np.float32(2.5), torch.tensor(2.5), torch.tensor([[2.5]])])
    def test_one_number_of_any_kind_becomes_a_float(self, value, measure):
        result = measure(mine=lambda *_: value)[1]["mine"]
        assert result == 2.5
        assert type(result) is float

    @pytest.mark.parametrize(
        ("value", "problem"),
        [
            (None, "must be one number, but it is a NoneType"),
            ("0.5", "must be one number, but it is a str"),
            (True, "must be one number, but it is a bool"),
            (np.True_, "must be one number, but it is a bool"),
            (1j, "must be one number, but it is a complex"),
            (torch.zeros(2), r"must be one number, but it is a tensor of shape \(2,\)"),
            (torch.zeros(0), r"must be one number, but it is a tensor of shape \(0,\)"),
            (np.nan, "is nan, which is not a finite number"),
            (-np.inf, "is -inf, which is not a finite number"),
            (torch.tensor(np.nan), "is nan, which is not a finite number"),
        ],
    )
    def test_any_other_value_is_refused_with_the_name(self, value, problem, measure):
        with pytest.raises(OffbeatError, match=f"^the metric mine {problem}$"):
            measure(mine=lambda *_: value)

    def test_a_metric_that_fails_is_named(self, measure):
        def metric(outputs: Tensor, labels: Tensor) -> float:
            raise KeyError("first\nsecond")

        with pytest.raises(OffbeatError, match="the metric mine failed: KeyError"):
            measure(mine=metric)

    def test_metrics_of_a_model_that_diverged_are_not_computed(self, measure):
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
def test_a_loss_that_is_not_a_scalar_is_refused(loss, found, measure):
    with pytest.raises(OffbeatError, match=rf"the loss must be .* a tensor of shape \(\), but it is {found}"):
        measure(loss)


def test_a_loss_that_fails_is_one_line_with_its_place(measure):
    def loss(outputs: Tensor, labels: Tensor) -> Tensor:
        raise KeyError("odd label")

    with pytest.raises(OffbeatError) as caught:
        measure(loss)
    place = f"{Path(__file__)}:{loss.__code__.co_firstlineno + 1}"
    assert str(caught.value) == f"evaluation: the model or the loss failed: KeyError: 'odd label' ({place})"


def test_changes_in_place_reach_neither_the_test_set_nor_another_metric(examples, answers, evaluator):
    class InPlace(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            inputs -= 0.5
            return super().forward(inputs)

    def spoiling(function):
        def spoil(outputs: Tensor, labels: Tensor) -> Any:
            value = function(outputs, labels)
            outputs.zero_()
            labels.zero_()
            return value

        return spoil

    model = made(lambda: FlatModel(InPlace(6, 4)))
    inputs, labels = examples.clone(), answers.clone()
    metrics = {"one": spoiling(accuracy), "two": spoiling(accuracy)}
    evaluate = evaluator(model, loss=spoiling(cross_entropy), metrics=metrics, inputs=inputs, labels=labels)
    outputs = nn.functional.linear(examples - 0.5, model.module.weight, model.module.bias).detach()
    share = (outputs.argmax(dim=1) == answers).float().mean().item()
    for _ in range(2):
        value, measured = evaluate(model.vector.clone())
        assert value == pytest.approx(cross_entropy(outputs, answers).item(), abs=1e-6)
        assert measured == {"one": pytest.approx(share), "two": pytest.approx(share)}
        assert 0 < share < 1
    assert torch.equal(inputs, examples)
    assert torch.equal(labels, answers)


def test_random_numbers_depend_on_the_seed_alone(evaluator):
    class Noisy(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            return nn.functional.dropout(super().forward(inputs), 0.5, training=True)

    model = made(lambda: FlatModel(Noisy(6, 4)))
    before = torch.get_rng_state()

    def measure(seed: int, drawn: int) -> tuple[float, dict[str, float]]:
        evaluate = evaluator(model, metrics={"random": lambda *_: torch.rand(()).item()}, seed=seed)
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


def test_inputs_by_name_are_those_of_one_tensor():
    """More than a batch, of a model that returns a mapping; also its own loss."""
    data = sentences_of((400,))
    words, labels = data["inputs"], data["labels"]
    plain, model = made(lambda: FlatModel(Plain())), made(lambda: FlatModel(Sentences()))
    vector = plain.vector.clone()
    world = {"metrics": ACCURACY, "labels": labels, "seed": 1}
    expected = Evaluator(plain, loss=cross_entropy, inputs=words, **world)(vector)
    for loss in (cross_entropy, model_loss):
        assert Evaluator(model, loss=loss, inputs=named(words), **world)(vector) == expected


def test_which_tokens_a_model_predicts_must_be_known():
    """Its loss may be of shifted tokens, which only a call of cross_entropy tells."""

    class Next(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(2, 3)

        def forward(self, inputs, labels=None):
            logits = self.body(inputs)
            logs = logits[:, :-1].log_softmax(dim=-1)
            return {"logits": logits, "loss": -logs.gather(-1, labels[:, 1:, None]).mean()}

    model = made(lambda: FlatModel(Next()))
    inputs, labels = torch.ones(10, 4, 2), torch.ones(10, 4).long()
    for metrics in (ACCURACY, {"perplexity": Perplexity()}):
        evaluate = Evaluator(model, loss=model_loss, metrics=metrics, inputs=inputs, labels=labels, seed=1)
        with pytest.raises(OffbeatError, match=r"needs to know which tokens the model predicts, .*metrics = \[\]$"):
            evaluate(model.vector.clone())


FOR_LABELS = torch.tensor([[2.0, 1, 0], [0, 1, 2], [3, 0, 0], [0, 5, 1], [0, 1, 9]])
TRUE_LABELS = torch.tensor([0, 0, 0, 1, 2])


def test_each_label_has_the_share_of_its_own_examples():
    metrics = label_metrics(TRUE_LABELS)
    assert {name: metric(FOR_LABELS, TRUE_LABELS) for name, metric in metrics.items()} == {
        "0": 2 / 3,
        "1": 1.0,
        "2": 1.0,
    }


def test_two_labels_of_one_logit():
    labels = torch.tensor([0, 1, 1])
    metrics = label_metrics(labels)
    outputs = torch.tensor([[-1.0], [2.0], [-3.0]])
    assert {name: metric(outputs, labels) for name, metric in metrics.items()} == {"0": 1.0, "1": 0.5}


@pytest.mark.parametrize(
    "labels", [torch.rand(4), torch.zeros(4, 2, dtype=torch.int64), torch.arange(101)], ids=["floats", "pairs", "many"]
)
def test_other_labels_are_no_classes(labels):
    assert label_metrics(labels) == {}


def test_an_ignored_label_has_no_accuracy():
    assert list(label_metrics(torch.tensor([0, -100, 2]))) == ["0", "2"]
    assert list(label_metrics(torch.tensor([0, 255, 2]), 255)) == ["0", "2"]
