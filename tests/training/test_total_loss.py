"""The loss on a test set is that of all examples together, whatever the batches."""

import functools
import math
from typing import NamedTuple

import pytest
import torch
from offbeat_core.errors import OffbeatError
from torch import nn
from torch.nn import functional
from torch.nn.functional import cross_entropy

from offbeat.training import evaluation, total_loss
from offbeat.training.evaluation import Evaluator
from offbeat.training.flat_model import FlatModel
from offbeat.training.objectives import bce, model_loss
from tests.training.conftest import made

N, CLASSES = 700, 5
DRAW = torch.Generator().manual_seed(3)
INPUTS = torch.randn(N, 6, generator=DRAW)
LABELS = torch.randint(CLASSES, (N,), generator=DRAW)
WEIGHT = torch.tensor([0.1, 5.0, 1.0, 2.0, 0.0])
IGNORED = LABELS.where(torch.rand(N, generator=DRAW) > 0.6, -100)
IGNORED[:300] = -100  # the first batch has no target
TOKENS = torch.randint(CLASSES, (N, 4), generator=DRAW).where(torch.rand(N, 4, generator=DRAW) > 0.5, -100)
PROBABILITIES = torch.rand(N, CLASSES, generator=DRAW).softmax(dim=1)


def dice(outputs, labels):
    """No mean at all, but a ratio of sums."""
    chosen = outputs.softmax(dim=1)[torch.arange(len(labels)), labels]
    return 1 - 2 * chosen.sum() / (outputs.softmax(dim=1).square().sum() + len(labels))


def root(outputs, labels):
    return (outputs[:, 0] - labels).square().mean().sqrt()


def masked(outputs, labels):
    """A mean over the examples of the first two classes only."""
    errors = cross_entropy(outputs, labels, reduction="none")
    return (errors * (labels < 2)).sum() / (labels < 2).sum()


def shifted(outputs, labels):
    return cross_entropy(outputs[:, :, :-1], labels[:, 1:])


class Shifted(nn.Module):
    """A language model of sorts, which computes the loss itself."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, CLASSES * 4)

    def forward(self, inputs, labels=None):
        logits = self.body(inputs).view(-1, CLASSES, 4)
        return {"logits": logits, "loss": None if labels is None else shifted(logits, labels)}


class Summed(Shifted):
    """It divides a sum by the number of targets."""

    def forward(self, inputs, labels=None):
        logits = self.body(inputs).view(-1, CLASSES, 4)
        targets = labels[:, 1:]
        total = cross_entropy(logits[:, :, :-1], targets, reduction="sum")
        return {"logits": logits, "loss": total / (targets != -100).sum()}


class Masked(Shifted):
    """It masks the targets itself."""

    def forward(self, inputs, labels=None):
        logits = self.body(inputs).view(-1, CLASSES, 4)
        targets = labels[:, 1:]
        each, mask = cross_entropy(logits[:, :, :-1], targets, reduction="none"), (targets != -100).float()
        return {"logits": logits, "loss": (each * mask).sum() / mask.sum()}


class PerExample(Shifted):
    """It divides the sum by the examples."""

    def forward(self, inputs, labels=None):
        logits = self.body(inputs).view(-1, CLASSES, 4)
        return {"logits": logits, "loss": cross_entropy(logits, labels, reduction="sum") / len(labels)}


class TwoHeads(nn.Module):
    def __init__(self, container):
        super().__init__()
        self.first, self.second, self.container = nn.Linear(6, CLASSES), nn.Linear(6, 1), container

    def forward(self, inputs):
        return self.container([self.first(inputs), [self.second(inputs)]])


class Pair(NamedTuple):
    first: torch.Tensor
    second: list[torch.Tensor]


CONTAINERS = {
    "a tuple": tuple,
    "a list": list,
    "a dict": lambda parts: dict(zip(["first", "second"], parts, strict=True)),
    "a named tuple": lambda parts: Pair(*parts),
}


def of_two_heads(outputs, labels):
    first, (second,) = outputs.values() if isinstance(outputs, dict) else outputs
    return cross_entropy(first, labels, weight=WEIGHT) + (second[:, 0] - labels).square().mean()


def linear():
    return nn.Linear(6, CLASSES)


def per_token():
    return nn.Sequential(nn.Linear(6, CLASSES * 4), nn.Unflatten(1, (CLASSES, 4)))


CASES = {
    "weights": (linear, nn.CrossEntropyLoss(weight=WEIGHT), LABELS),
    "weights and smoothing": (linear, nn.CrossEntropyLoss(weight=WEIGHT + 0.1, label_smoothing=0.2), IGNORED),
    "ignored": (linear, cross_entropy, IGNORED),
    "another number ignored": (linear, nn.CrossEntropyLoss(ignore_index=2), LABELS),
    "a partial": (linear, functools.partial(cross_entropy, weight=WEIGHT, ignore_index=1), LABELS),
    "nll": (
        lambda: nn.Sequential(linear(), nn.LogSoftmax(dim=1)),
        nn.NLLLoss(weight=WEIGHT, ignore_index=3),
        LABELS,
    ),
    "a function": (linear, lambda outputs, labels: cross_entropy(outputs, labels, weight=WEIGHT), LABELS),
    "tokens": (per_token, cross_entropy, TOKENS),
    "an own shift": (per_token, shifted, TOKENS),
    "the model's": (Shifted, model_loss, TOKENS),
    "the model's sum by targets": (Summed, model_loss, TOKENS),
    "the model's own mask": (Masked, model_loss, TOKENS),
    **{name: (lambda make=make: TwoHeads(make), of_two_heads, LABELS) for name, make in CONTAINERS.items()},
    "a sum of two": (
        linear,
        lambda outputs, labels: cross_entropy(outputs, labels, weight=WEIGHT) + 0.3 * dice(outputs, labels),
        LABELS,
    ),
    "two with other weights": (
        linear,
        lambda outputs, labels: cross_entropy(outputs, labels, weight=WEIGHT) + cross_entropy(outputs, labels),
        LABELS,
    ),
    "no mean": (linear, root, LABELS),
    "masked by hand": (linear, masked, LABELS),
    "a sum": (linear, lambda outputs, labels: cross_entropy(outputs, labels, reduction="sum"), LABELS),
}
MEANS = {
    "cross-entropy": (linear, cross_entropy, LABELS),
    "probabilities": (linear, nn.CrossEntropyLoss(weight=WEIGHT), PROBABILITIES),
    "bce": (linear, bce, PROBABILITIES),
    "positives count more": (linear, nn.BCEWithLogitsLoss(pos_weight=WEIGHT), PROBABILITIES),
    "batchmean": (
        lambda: nn.Sequential(linear(), nn.LogSoftmax(dim=1)),
        nn.KLDivLoss(reduction="batchmean"),
        PROBABILITIES,
    ),
    "a function of torch": (linear, functional.mse_loss, PROBABILITIES),
    "an own mean": (linear, lambda outputs, labels: (outputs[:, 0] - labels).square().mean(), LABELS),
}


def evaluate(make, loss, labels):
    model = made(lambda: FlatModel(make()))
    return Evaluator(model, loss=loss, metrics={}, inputs=INPUTS, labels=labels, seed=1)(model.vector.clone())[0]


def on_all_at_once(make, loss, labels):
    module = made(make)
    with torch.no_grad():
        if loss is model_loss:
            return module(INPUTS, labels=labels)["loss"].item()
        return loss(module(INPUTS), labels).item()


@pytest.mark.parametrize("batch", [7, 256])
@pytest.mark.parametrize("case", [*CASES, *MEANS])
def test_the_loss_is_that_of_all_examples_at_once(case, batch, monkeypatch):
    monkeypatch.setattr(evaluation, "_BATCH", batch)
    setting = (CASES | MEANS)[case]
    assert evaluate(*setting) == pytest.approx(on_all_at_once(*setting), rel=2e-5)


@pytest.mark.parametrize("case", MEANS)
def test_a_mean_over_examples_is_added_up_by_batches_as_before(case):
    make, loss, labels = MEANS[case]
    module, total = made(make), 0.0
    with torch.no_grad():
        for first in (0, 256, 512):
            chosen = slice(first, min(first + 256, N))
            total += loss(module(INPUTS[chosen]), labels[chosen]).item() * (chosen.stop - first)
    assert evaluate(make, loss, labels) == total / N


def test_a_models_sum_that_is_divided_by_the_examples_counts_by_them():
    setting = PerExample, model_loss, TOKENS
    assert evaluate(*setting) == pytest.approx(on_all_at_once(*setting), rel=2e-5)


def test_labels_that_are_all_ignored_have_no_loss():
    nothing = torch.full((N,), -100)
    with pytest.raises(OffbeatError, match="the loss ignores all labels here"):
        evaluate(linear, cross_entropy, nothing)
    with pytest.raises(OffbeatError, match="the loss ignores all labels here"):
        evaluate(Shifted, model_loss, torch.full((N, 4), -100))


def test_a_model_that_diverged_has_no_finite_loss():
    model = made(lambda: FlatModel(linear()))
    measure = Evaluator(model, loss=cross_entropy, metrics={}, inputs=INPUTS, labels=IGNORED, seed=1)
    assert math.isnan(measure(torch.full_like(model.vector, math.nan))[0])


def test_outputs_too_large_to_keep_count_by_examples(monkeypatch):
    monkeypatch.setattr(total_loss, "_MOST_KEPT", CLASSES * N - 1)
    module = made(linear)
    with torch.no_grad():
        parts = [(len(part), dice(module(part), label).item()) for part, label in zip(*split(), strict=True)]
    assert evaluate(linear, dice, LABELS) == pytest.approx(sum(size * value for size, value in parts) / N, rel=1e-6)


class WithMore(nn.Linear):
    """Returns something else beside its outputs."""

    more = None

    def forward(self, inputs):
        return super().forward(inputs), self.more


@pytest.mark.parametrize("more", [torch.ones(()), torch.ones(3), "text"])
def test_outputs_without_a_row_for_each_example_count_by_examples(more, monkeypatch):
    monkeypatch.setattr(WithMore, "more", more)
    module = made(lambda: WithMore(6, CLASSES))
    with torch.no_grad():
        parts = [(len(part), dice(module(part)[0], label).item()) for part, label in zip(*split(), strict=True)]
    value = evaluate(lambda: WithMore(6, CLASSES), lambda outputs, labels: dice(outputs[0], labels), LABELS)
    assert value == pytest.approx(sum(size * value for size, value in parts) / N, rel=1e-6)


def split():
    return INPUTS.split(256), LABELS.split(256)
