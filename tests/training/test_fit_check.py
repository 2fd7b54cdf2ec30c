import functools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from offbeat_core.errors import OffbeatError
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from offbeat.training.fit_check import check_fit
from offbeat.training.flat_model import FlatModel
from offbeat.training.models import cnn, lstm, mlp
from offbeat.training.objectives import LOSSES
from tests.inputs_by_name import Sentences, named
from tests.training.conftest import made

ONES = torch.ones(3, 2)
LABELS = torch.tensor([0, 3, 1])


def model(make: Callable[[], nn.Module], **arguments: Any) -> FlatModel:
    return made(lambda: FlatModel(make(), **arguments))


def linear(outputs: int = 4) -> FlatModel:
    return model(lambda: nn.Linear(2, outputs))


def flat() -> FlatModel:
    """A model with outputs (n,)."""
    return model(lambda: nn.Sequential(nn.Linear(2, 1), nn.Flatten(0)))


def problem(
    start: FlatModel, loss: Any = cross_entropy, inputs: Tensor = ONES, labels: Tensor = LABELS, **more: Any
) -> str:
    with pytest.raises(OffbeatError) as caught:
        check_fit(start, loss, inputs, labels, **more)
    return str(caught.value)


class Detaching(nn.Linear):
    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs).detach()


class TestFits:
    @pytest.mark.parametrize(
        ("make", "loss", "inputs", "labels", "others"),
        [
            (lambda: mlp((2, 3), 4, [5]), "cross_entropy", torch.ones(3, 2, 3), LABELS, {"classes": 4}),
            (lambda: cnn((1, 4, 4), 4), "cross_entropy", torch.ones(3, 1, 4, 4), LABELS, {"classes": 4}),
            (lambda: lstm(9, 4), "cross_entropy", torch.ones(3, 5).long(), LABELS, {"classes": 4, "tokens": 9}),
            (lambda: nn.Linear(2, 1), "mse", torch.ones(3, 2), LABELS, {}),
            (lambda: nn.Linear(2, 1), "bce", torch.ones(3, 2), LABELS.clamp(max=1), {"classes": 2}),
            (lambda: nn.Linear(2, 4), "cross_entropy", torch.ones(3, 2), torch.full((3, 4), 0.25), {}),
        ],
    )
    def test_what_fits_passes(self, make, loss, inputs, labels, others):
        check_fit(model(make), LOSSES[loss], inputs, labels, **others)

    def test_a_gradient_of_zero_passes(self):
        """A model may be right by chance on a few examples."""
        start = linear(1)
        start.vector.zero_()
        check_fit(start, LOSSES["mse"], torch.ones(3, 2), torch.zeros(3))

    def test_a_parameter_may_be_unused(self):
        class Half(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.unused, self.used = nn.Linear(2, 1), nn.Linear(2, 4)

            def forward(self, inputs: Tensor) -> Tensor:
                return self.used(inputs)

        check_fit(model(Half), cross_entropy, ONES, LABELS)

    def test_a_small_embedding_of_positions_is_accepted(self):
        class Placed(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.place, self.token, self.output = nn.Embedding(5, 3), nn.Embedding(100, 3), nn.Linear(3, 4)

            def forward(self, inputs: Tensor) -> Tensor:
                return self.output((self.token(inputs) + self.place(torch.arange(inputs.shape[1]))).mean(dim=1))

        check_fit(model(Placed), cross_entropy, torch.ones(3, 5).long(), LABELS, tokens=100)
        message = problem(model(Placed), inputs=torch.ones(3, 6).long(), tokens=100)
        assert "embedding place has entries 0 to 4, but is called with index 5" in message


class TestBuffers:
    def test_those_that_change_in_training_are_logged_once(self, caplog):
        class Changing(nn.Linear):
            def __init__(self) -> None:
                super().__init__(2, 4)
                for name in ("written", "replaced", "resized", "table"):
                    self.register_buffer(name, torch.zeros(2).long())

            def forward(self, inputs: Tensor) -> Tensor:
                if self.training:
                    self.written += 1
                    self.replaced = self.replaced + 1
                    self.resized.resize_(5)
                return super().forward(inputs)[:, self.table[0] :]

        for _ in range(2):
            check_fit(model(Changing), cross_entropy, ONES, LABELS)
        (record,) = caplog.records
        assert record.getMessage() == (
            "the model's buffers change in training (written, replaced, resized): each visit and evaluation begins "
            "with their first values"
        )

    def test_those_that_change_in_evaluation_are_not(self, caplog):
        class Looking(nn.Linear):
            def __init__(self) -> None:
                super().__init__(2, 4)
                self.register_buffer("looks", torch.zeros(()).long())

            def forward(self, inputs: Tensor) -> Tensor:
                if not self.training:
                    self.looks += 1
                return super().forward(inputs)

        check_fit(model(Looking), cross_entropy, ONES, LABELS)
        assert not caplog.records


class TestLeavesAlone:
    @pytest.mark.parametrize(("mode", "fails"), [(True, False), (False, True)])
    def test_values_gradients_buffers_mode_and_randomness(self, mode, fails):
        class Counting(nn.Linear):
            def __init__(self) -> None:
                super().__init__(2, 4)
                self.register_buffer("seen", torch.zeros(1))
                self.dropout = nn.Dropout(0.5)

            def forward(self, inputs: Tensor) -> Tensor:
                self.seen += 1
                return self.dropout(super().forward(inputs))

        start = model(Counting)
        start.gradient.fill_(7.0)
        start.module.train(mode)
        vector, randomness = start.vector.clone(), torch.get_rng_state()
        inputs, labels = torch.ones(3, 2), LABELS.clone()
        if fails:
            problem(start, lambda *_: None, inputs, labels)
        else:
            check_fit(start, cross_entropy, inputs, labels)
        assert torch.equal(start.vector, vector)
        assert start.gradient.tolist() == [7.0] * 12
        assert start.module.seen.item() == 0
        assert start.module.training is mode
        assert torch.equal(torch.get_rng_state(), randomness)
        assert torch.equal(inputs, torch.ones(3, 2))
        assert torch.equal(labels, LABELS)
        # Parameters and gradients are still views of the vectors.
        start.module.eval()(inputs).sum().backward()
        assert start.gradient.tolist() != [7.0] * 12

    def test_inputs_and_labels_that_are_changed_in_place(self):
        class InPlace(nn.Linear):
            def forward(self, inputs: Tensor) -> Tensor:
                inputs -= 0.5
                return super().forward(inputs)

        def loss(outputs: Tensor, labels: Tensor) -> Tensor:
            value = cross_entropy(outputs, labels.clone())
            labels.zero_()
            return value

        inputs, labels = torch.ones(3, 2), LABELS.clone()
        check_fit(model(lambda: InPlace(2, 4)), loss, inputs, labels)
        assert torch.equal(inputs, torch.ones(3, 2))
        assert torch.equal(labels, LABELS)

    def test_inputs_of_tokens_and_later_calls(self):
        start, inputs = model(lambda: lstm(9, 4)), torch.ones(3, 5).long()
        problem(start, inputs=inputs, tokens=10)
        assert torch.equal(inputs, torch.ones(3, 5).long())
        assert not start.module.embedding._forward_pre_hooks


class InPlace(nn.Linear):
    """Changes its outputs after autograd has saved them."""

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = super().forward(inputs).exp()
        outputs += outputs.square()
        outputs.mul_(2)
        return outputs


def fails(outputs: Tensor, labels: Tensor) -> Tensor:
    raise KeyError("one\ntwo")


def beyond(largest: int, has: str) -> str:
    return (
        f"the labels go up to {largest}, but the model has {has}: number the classes from 0 or give the model "
        f"{largest + 1} outputs"
    )


INPUTS = "the model cannot take inputs of shape"
FLOATS = "the labels are floats, but cross_entropy needs classes"
SCALAR = "the loss must be the mean over the minibatch, a tensor of shape (), but it is"
UNREACHED = "no gradient of the loss reaches any"
BCE = "bce needs labels from 0 to 1, but they go from"
LINEAR = functools.partial(nn.Linear, 2, 4)
ONE = functools.partial(nn.Linear, 2, 1)


class Forgetful(nn.Linear):
    def __init__(self):
        super().__init__(2, 4)

    def forward(self, inputs):
        super().forward(inputs)


@pytest.mark.parametrize(
    ("make", "given", "line"),
    [
        (lambda: mlp((2, 3), 4, [5]), {"inputs": torch.ones(3, 2, 4)}, f"{INPUTS} (3, 2, 4) and type float32: Runtime"),
        (LINEAR, {"inputs": ONES.long()}, f"{INPUTS} (3, 2) and type int64: RuntimeError: "),
        (lambda: lstm(9, 4), {}, f"{INPUTS} (3, 2) and type float32: RuntimeError: "),
        (lambda: nn.Linear(2, 5), {"classes": 10}, beyond(9, "5 outputs")),
        (lambda: nn.Linear(2, 5), {"labels": LABELS + 3}, beyond(6, "5 outputs")),
        (ONE, {"classes": 4}, beyond(3, "1 output")),
        (ONE, {"labels": LABELS * 0}, "cross_entropy of one output is always 0"),
        (
            lambda: flat().module,
            {},
            "cross_entropy needs outputs of shape (n, classes), but the model's have shape (3,)",
        ),
        (ONE, {"labels": torch.ones(3)}, FLOATS),
        (lambda: flat().module, {"labels": torch.ones(3)}, FLOATS),
        (LINEAR, {"labels": torch.ones(3, 1)}, FLOATS),
        (LINEAR, {"labels": LABELS[:2]}, "the loss cannot take outputs of shape (3, 4) and type float32 with labels"),
        (LINEAR, {"loss": LOSSES["mse"]}, "mse needs labels of the outputs'"),
        (ONE, {"loss": LOSSES["bce"], "labels": torch.tensor([0, 2, 1])}, f"{BCE} 0 to 2"),
        (ONE, {"loss": LOSSES["bce"], "labels": torch.tensor([-1.0, 1, 0])}, f"{BCE} -1 to 1"),
        (ONE, {"loss": LOSSES["bce"], "labels": torch.tensor([0, 1, 1]), "classes": 10}, f"{BCE} 0 to 9"),
        (LINEAR, {"loss": lambda *_: 1.0}, SCALAR),
        (LINEAR, {"loss": lambda outputs, _: outputs.sum()[None]}, SCALAR),
        (LINEAR, {"inputs": ONES * torch.nan}, "the loss of the initial model is nan"),
        (LINEAR, {"loss": lambda outputs, labels: outputs.mean() * math.nan}, "the loss of the initial model is nan"),
        (
            LINEAR,
            {"loss": lambda outputs, labels: (outputs * 0).sum().sqrt()},
            "the gradient of the initial model's parameter weight is not finite",
        ),
        (LINEAR, {"loss": fails}, "the loss cannot take outputs"),
        (Forgetful, {}, "the model's forward returns None: has it forgotten its return?"),
        (lambda: Detaching(2, 4), {}, UNREACHED),
        (LINEAR, {"loss": lambda outputs, labels: cross_entropy(outputs.detach(), labels)}, UNREACHED),
        (LINEAR, {"loss": lambda *_: mse_loss(torch.ones(1, requires_grad=True), torch.zeros(1))}, UNREACHED),
        (lambda: InPlace(2, 4), {}, "the loss cannot be differentiated: RuntimeError: one of the variables"),
        (LINEAR, {"loss": nn.CrossEntropyLoss(ignore_index=255), "classes": 7}, "the labels go up to 6"),
    ],
)
def test_a_misfit_is_one_line(make, given, line):
    assert problem(model(make), **given).startswith(line)


def test_floats_that_need_another_loss_are_told_which():
    assert 'set model.loss = "mse"' in problem(linear(), labels=torch.ones(3))


class TestDoesNotFit:
    def test_one_example_for_batch_norm(self):
        start = model(lambda: nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4)), batch_norm="local")
        assert "Expected more than 1 value" in problem(start, inputs=ONES[:1], labels=LABELS[:1])
        check_fit(start, cross_entropy, ONES[:2], LABELS[:2])

    def test_an_own_loss_that_would_broadcast(self):
        def loss(outputs: Tensor, labels: Tensor) -> Tensor:
            return (outputs - labels).square().mean()

        column = linear(1)
        inputs, labels = torch.arange(6.0).reshape(3, 2), torch.tensor([1.0, 5.0, 2.0])
        message = problem(column, loss, inputs, labels)
        assert message.startswith("your own loss gets outputs of shape (3, 1) and labels of shape (3,), which torch ")
        assert "squeeze the outputs" in message
        for start, n, targets in [
            (flat(), 3, torch.ones(3)),
            (column, 3, torch.ones(3, 1)),
            (column, 1, torch.ones(1)),
            (linear(3), 3, torch.ones(3)),
        ]:
            check_fit(start, loss, torch.ones(n, 2), targets)
        check_fit(column, LOSSES["mse"], inputs, labels)
        check_fit(column, lambda outputs, labels: loss(outputs.squeeze(1), labels), inputs, labels)
        check_fit(column, lambda outputs, labels: loss(outputs.reshape(-1), labels), inputs, labels)

    def test_a_model_that_fails_in_evaluation_mode(self):
        class Training(nn.Linear):
            def forward(self, inputs: Tensor) -> Tensor:
                if not self.training:
                    raise KeyError("only for training")
                return super().forward(inputs)

        start = model(lambda: Training(2, 4))
        message = problem(start)
        assert message.startswith(f"{INPUTS} (3, 2) and type float32 in evaluation mode: KeyError: 'only for")
        assert start.module.training

    def test_tokens_beyond_the_embedding(self):
        """Also those that the few examples do not show."""
        start = model(lambda: lstm(9, 4))
        inputs = torch.tensor([[1, 2], [8, 0], [3, 0]])
        check_fit(start, cross_entropy, inputs, LABELS, tokens=9)
        expected = "the model's embedding embedding has entries 0 to 8, but is called with index {}: give it as many"
        assert problem(start, inputs=inputs, tokens=12).startswith(expected.format(11))
        assert problem(start, inputs=inputs + 1).startswith(expected.format(9))


WORDS = torch.tensor([[1, 2], [8, 0], [3, 3]])


class NeedsLabels(Sentences):
    def forward(self, input_ids, attention_mask, labels):
        return super().forward(input_ids, attention_mask, labels)


class Scores(Sentences):
    def forward(self, input_ids, attention_mask, labels=None):
        return {"scores": super().forward(input_ids, attention_mask)["logits"]}


class TestInputsByName:
    @pytest.mark.parametrize("loss", ["cross_entropy", "model"])
    def test_what_fits_passes(self, loss):
        check_fit(model(Sentences), LOSSES[loss], named(WORDS), LABELS, classes=4, tokens=9)

    def test_the_largest_token_is_tried(self):
        inputs = named(WORDS)
        assert "entries 0 to 8, but is called with index 9" in problem(model(Sentences), inputs=inputs, tokens=10)
        assert torch.equal(inputs["input_ids"], WORDS)

    def test_other_names_are_one_line_with_all_inputs(self):
        line = problem(model(Sentences), inputs={"words": WORDS, "attention_mask": WORDS > 0})
        assert "inputs words of shape (3, 2) and type int64, attention_mask of shape (3, 2) and type bool" in line
        assert "unexpected keyword argument 'words'" in line

    @pytest.mark.parametrize("make", [NeedsLabels, Scores])
    def test_a_model_that_takes_labels_is_offered_its_own_loss(self, make):
        assert 'or set model.loss = "model" to use its own loss' in problem(model(make), inputs=named(WORDS))

    def test_others_are_not(self):
        assert "model.loss" not in problem(model(lambda: nn.Linear(3, 4)))
        assert problem(model(Scores), loss=LOSSES["model"], inputs=named(WORDS)).endswith("name another loss")

    def test_labels_that_do_not_fit_the_logits_are_named(self):
        assert "give the model 10 outputs" in problem(model(Sentences), inputs=named(WORDS), classes=10)


class Hiding(nn.Linear):
    """A model whose list of layers torch does not see."""

    def __init__(self) -> None:
        super().__init__(2, 4)
        self.layers = [nn.Linear(4, 4)]

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layers[0](super().forward(inputs))


class TestTensorsThatNobodyTrains:
    def test_of_a_loss(self):
        scale = torch.ones(3, requires_grad=True)
        line = problem(linear(), lambda outputs, labels: (cross_entropy(outputs, labels) * scale).mean())
        assert line == (
            "the loss has a gradient by a tensor of shape (3,) that is not a parameter of the model, so it would not "
            "be trained: make it one, or set requires_grad = False"
        )
        check_fit(
            linear(), lambda outputs, labels: (cross_entropy(outputs, labels) * scale.detach()).mean(), ONES, LABELS
        )

    def test_of_layers_in_a_list(self):
        assert "is not a parameter of the model" in problem(model(Hiding))


def test_the_examples_that_are_tried_may_have_no_target():
    check_fit(linear(), cross_entropy, ONES, LABELS * 0 - 100, classes=4)
    check_fit(linear(), nn.CrossEntropyLoss(ignore_index=255), ONES, LABELS * 0 + 255, classes=4)
