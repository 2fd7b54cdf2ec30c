import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from offbeat_core.errors import OffbeatError

from offbeat.training.objectives import LOSSES, METRICS, Objective, accuracy, bce, model_loss, mse, predictions

NUMBERS = st.lists(st.tuples(st.floats(-50, 50, width=32), st.floats(0, 1, width=32)), min_size=2, max_size=6)


def test_accuracy_is_the_better_the_higher_and_errors_the_lower():
    assert {name: metric.higher_is_better for name, metric in METRICS.items()} == {
        "accuracy": True,
        "perplexity": False,
        "macro_f1": True,
        "iou": True,
        "mse": False,
        "mae": False,
    }


@given(NUMBERS, st.booleans(), st.booleans())
def test_one_output_per_example_is_never_broadcast(pairs, wide_outputs, wide_labels):
    """(n,) and (n, 1) are the same; the formulas in float64 by hand."""
    outputs, labels = (torch.tensor(column) for column in zip(*pairs, strict=True))
    if wide_outputs:
        outputs = outputs[:, None]
    if wide_labels:
        labels = labels[:, None]
    n = len(pairs)
    squared = sum((z - y) ** 2 for z, y in pairs) / n
    absolute = sum(abs(z - y) for z, y in pairs) / n
    entropy = sum(max(z, 0) - z * y + math.log1p(math.exp(-abs(z))) for z, y in pairs) / n
    assert mse(outputs, labels).item() == pytest.approx(squared, rel=1e-5, abs=1e-6)
    assert bce(outputs, labels).item() == pytest.approx(entropy, rel=1e-5, abs=1e-6)
    assert METRICS["mse"].function(outputs, labels) == pytest.approx(squared, rel=1e-5, abs=1e-9)
    assert METRICS["mae"].function(outputs, labels) == pytest.approx(absolute, rel=1e-5, abs=1e-9)
    assert mse(outputs, labels).shape == bce(outputs, labels).shape == ()


@pytest.mark.parametrize("loss", [mse, bce])
def test_integer_labels_can_be_learnt(loss):
    outputs = torch.tensor([[0.5], [-2.0]], requires_grad=True)
    floats = loss(outputs, torch.tensor([1.0, 0.0]))
    value = loss(outputs, torch.tensor([1, 0]))
    assert torch.equal(value, floats)
    value.backward()
    assert outputs.grad is not None
    assert (outputs.grad.sign() == torch.tensor([[-1.0], [-1.0 if loss is mse else 1.0]])).all()


def test_several_outputs_an_example():
    outputs, labels = torch.tensor([[1.0, 2.0], [3.0, 5.0]]), torch.tensor([[1.0, 0.0], [3.0, 1.0]])
    assert mse(outputs, labels).item() == 5.0  # (0 + 4 + 0 + 16) / 4
    assert METRICS["mse"].function(outputs, labels) == 5.0
    assert METRICS["mae"].function(outputs, labels) == 1.5


@pytest.mark.parametrize("name", ["mse", "bce", "mae"])
@pytest.mark.parametrize(
    ("outputs", "labels"),
    [((3,), (1,)), ((3, 1), (1,)), ((3, 2), (3,)), ((3,), (3, 3)), ((1, 3), (3,)), ((3, 1), (3, 1, 1, 1)), ((2,), ())],
)
def test_other_shapes_are_refused(name, outputs, labels):
    function = LOSSES[name] if name in LOSSES else METRICS[name].function
    with pytest.raises(OffbeatError) as caught:
        function(torch.zeros(outputs), torch.zeros(labels))
    assert str(caught.value) == f"{name} needs labels of the outputs' shape {outputs}, but they have shape {labels}"


class TestAccuracy:
    def test_is_the_share_of_largest_outputs_that_are_right(self):
        outputs = torch.from_numpy(np.random.default_rng(1).normal(size=(997, 7)))
        labels = torch.from_numpy(np.random.default_rng(2).integers(7, size=997))
        right = sum(max(range(7), key=row.__getitem__) == y for row, y in zip(outputs.tolist(), labels, strict=True))
        assert accuracy(outputs, labels) == right / 997
        assert type(accuracy(outputs, labels)) is float

    def test_the_first_of_equals_is_taken(self):
        assert accuracy(torch.tensor([[1.0, 1.0], [1.0, 1.0], [0.0, 1.0]]), torch.tensor([0, 1, 1])) == 2 / 3

    @pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
    @pytest.mark.parametrize("outputs_shape", [(4,), (4, 1)])
    @pytest.mark.parametrize("labels_shape", [(4,), (4, 1)])
    def test_one_output_is_a_logit(self, dtype, outputs_shape, labels_shape):
        outputs = torch.tensor([0.1, -0.4, 0.0, 2.0])  # right, wrong, right, right
        labels = torch.tensor([1, 1, 0, 1], dtype=dtype)
        assert accuracy(outputs.view(outputs_shape), labels.view(labels_shape)) == 0.75


class Outputs:
    """An object with fields, such as Hugging Face's."""

    def __init__(self, **fields):
        vars(self).update(fields)


LOGITS, LABELS = torch.tensor([[1.0, 3.0]]), torch.tensor([1])


def test_inputs_by_name_are_keyword_arguments():
    calls = []

    def module(*args, **kwargs):
        calls.append((args, kwargs))

    for loss in (mse, model_loss):
        Objective(loss).apply(module, LOGITS, LABELS)
        Objective(loss).apply(module, {"a": LOGITS}, LABELS)
    named = {"labels": LABELS}
    assert calls == [((LOGITS,), {}), ((), {"a": LOGITS}), ((LOGITS,), named), ((), {"a": LOGITS} | named)]


@pytest.mark.parametrize(
    "outputs", [LOGITS, {"logits": LOGITS, "loss": None}, Outputs(logits=LOGITS, hidden=LABELS)], ids=lambda o: type(o)
)
def test_a_named_loss_gets_the_logits(outputs):
    assert predictions(outputs) is LOGITS
    assert Objective(lambda given, labels: (given[0, 1] - labels).sum()).loss_of(outputs, LABELS) == 2


@pytest.mark.parametrize("outputs", [(LOGITS, LABELS), {"scores": LOGITS}])
def test_other_outputs_are_left_to_a_loss_of_the_users(outputs):
    assert predictions(outputs) is outputs
    seen = []
    Objective(lambda given, labels: seen.append(given) or torch.tensor(0.0)).loss_of(outputs, LABELS)
    assert seen == [outputs]


@pytest.mark.parametrize("kind", [dict, Outputs])
def test_the_models_own_loss(kind):
    loss = Objective(LOSSES["model"]).loss_of(kind(loss=torch.tensor(3.0), logits=LOGITS), LABELS)
    assert loss.item() == 3


@pytest.mark.parametrize("outputs", [LOGITS, {"loss": None}, Outputs(logits=LOGITS)])
def test_a_model_without_a_loss_is_one_line(outputs):
    with pytest.raises(OffbeatError, match=r'model\.loss = "model" needs a model .* without loss: name another loss$'):
        Objective(model_loss).loss_of(outputs, LABELS)


def test_a_loss_is_a_scalar():
    with pytest.raises(OffbeatError, match=r"shape \(\), but it is one of shape \(1, 2\)"):
        Objective(model_loss).loss_of({"loss": LOGITS}, LABELS)
