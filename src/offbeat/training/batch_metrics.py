"""Metrics that are added up batch by batch, so that no outputs are kept."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch
from offbeat_core.errors import OffbeatError
from torch import Tensor
from torch.nn.functional import cross_entropy

from offbeat.training.cross_entropy_calls import CrossEntropyCall
from offbeat.training.loss_modules import IGNORED

_LARGEST_EXPONENT = 700.0


class BatchMetric(ABC):
    """A metric that is a function of sums over the examples of a test set.

    Classes are compared where the outputs have a dimension of classes, after the examples' or the last. If the shapes
    do not tell, the outputs and targets are those of the loss's cross-entropy, such as the shifted ones of a language
    model. Outputs in the shape of the labels are logits of one decision each, 1 where they are above 0; so are float
    labels above 0.5. Targets that the loss ignores are left out.
    """

    name: str

    @abstractmethod
    def count(self, outputs: Tensor, labels: Tensor, calls: Sequence[CrossEntropyCall] = ()) -> Tensor:
        """Return the sums over a batch, given the cross-entropies of its loss."""

    @abstractmethod
    def value(self, counts: Tensor) -> float:
        """Return the metric from the sums over all batches.

        Raises ``OffbeatError`` if it is undefined.
        """

    def __call__(self, outputs: Tensor, labels: Tensor) -> float:
        """Return the metric of all outputs and labels."""
        return self.value(self.count(outputs, labels))


class Accuracy(BatchMetric):
    """The share of correct predictions.

    They are of examples, of tokens or pixels, or decisions on each of several labels. The predicted class is the one
    with the largest output, the first of equals.
    """

    name = "accuracy"

    def count(self, outputs: Tensor, labels: Tensor, calls: Sequence[CrossEntropyCall] = ()) -> Tensor:
        """Return the numbers of correct predictions, of all, and of impossible targets."""
        predicted, target, classes = _predict(self.name, outputs, labels, calls)
        right = (predicted == target).sum()
        impossible = torch.zeros_like(right) if classes is None else (target >= classes).sum()
        return torch.stack([right, torch.full_like(right, target.numel()), impossible])

    def value(self, counts: Tensor) -> float:
        """Return the accuracy."""
        right, number, impossible = counts.tolist()
        if impossible:
            raise _impossible(self.name)
        return _mean(self.name, right, number)


class Perplexity(BatchMetric):
    """The exponential of the mean cross-entropy, without weights, of the targets."""

    name = "perplexity"

    def count(self, outputs: Tensor, labels: Tensor, calls: Sequence[CrossEntropyCall] = ()) -> Tensor:
        """Return the sum of the cross-entropies, and their number."""
        logits, targets, ignored = _logits(self.name, outputs, labels, calls)
        total = cross_entropy(logits.float(), targets, ignore_index=ignored, reduction="sum")
        wide = total if total.device.type == "mps" else total.double()
        return torch.stack([wide, (targets != ignored).sum().to(wide.dtype)])

    def value(self, counts: Tensor) -> float:
        """Return the perplexity."""
        return math.exp(min(_mean(self.name, *counts.tolist()), _LARGEST_EXPONENT))


class _Overlap(BatchMetric):
    """The mean over classes or labels of the overlap of predictions and targets.

    Classes that are neither predicted nor a target are left out.
    """

    def count(self, outputs: Tensor, labels: Tensor, calls: Sequence[CrossEntropyCall] = ()) -> Tensor:
        """Return for each class the correct predictions, all predictions and all targets."""
        predicted, target, classes = _predict(self.name, outputs, labels, calls)
        if classes is None:
            ones = (predicted > 0, target > 0)
            return torch.stack([part.sum(dim=0) for part in (ones[0] & ones[1], *ones)])
        if (target >= classes).any():
            raise _impossible(self.name)
        parts = (target[predicted == target], predicted, target)
        return torch.stack([torch.bincount(part.long(), minlength=classes) for part in parts])

    def value(self, counts: Tensor) -> float:
        """Return the mean over the classes that occur."""
        ratios = [
            self._ratio(right, predicted, actual)
            for right, predicted, actual in counts.T.tolist()
            if predicted + actual > 0
        ]
        return _mean(self.name, math.fsum(ratios), len(ratios))

    @abstractmethod
    def _ratio(self, right: int, predicted: int, actual: int) -> float: ...


class MacroF1(_Overlap):
    """The mean of the labels' F1 scores."""

    name = "macro_f1"

    def _ratio(self, right: int, predicted: int, actual: int) -> float:
        return 2 * right / (predicted + actual)


class Iou(_Overlap):
    """The mean of the classes' intersections over unions of predicted and true masks."""

    name = "iou"

    def _ratio(self, right: int, predicted: int, actual: int) -> float:
        return right / (predicted + actual - right)


accuracy = Accuracy()


class _Predictions(NamedTuple):
    """Predicted classes and targets, ``(m,)``; or decisions, ``(m, labels)``."""

    predicted: Tensor
    target: Tensor
    classes: int | None


def _predict(name: str, outputs: Tensor, labels: Tensor, calls: Sequence[CrossEntropyCall]) -> _Predictions:
    if _without_one(outputs).shape == _without_one(labels).shape and _is_single(outputs):
        return _Predictions((outputs > 0).long().reshape(-1, 1), _decisions(labels).reshape(-1, 1), None)
    call = _only(calls)
    fits_second, fits_last = labels.shape == outputs.shape[:1] + outputs.shape[2:], labels.shape == outputs.shape[:-1]
    if not _is_single(outputs) and fits_second and not (fits_last and call is not None and outputs.ndim > 2):
        return _classes(outputs, labels, IGNORED if call is None else call.ignored)
    if call is not None and call.has_classes:
        return _classes(call.outputs, call.targets, call.ignored)
    if call is not None:
        return _classes(call.outputs, call.targets.argmax(dim=1), IGNORED)
    if not labels.is_floating_point() and fits_last:
        return _classes(outputs.movedim(-1, 1), labels, IGNORED)
    if labels.shape == outputs.shape:
        several = [part.movedim(1, -1).flatten(0, -2) for part in ((outputs > 0).long(), _decisions(labels))]
        return _Predictions(several[0], several[1], None)
    raise _misfit(name, outputs, labels)


def _logits(
    name: str, outputs: Tensor, labels: Tensor, calls: Sequence[CrossEntropyCall]
) -> tuple[Tensor, Tensor, int]:
    """Return logits ``(n, classes, …)``, targets ``(n, …)``, the ignored number."""
    call = _only(calls)
    if call is not None and call.has_classes:
        return call.outputs, call.targets, call.ignored
    if not labels.is_floating_point():
        if labels.shape == outputs.shape[:1] + outputs.shape[2:]:
            return outputs, labels, IGNORED
        if labels.shape == outputs.shape[:-1]:
            return outputs.movedim(-1, 1), labels, IGNORED
    raise _misfit(name, outputs, labels)


def _decisions(labels: Tensor) -> Tensor:
    """Return labels as whole numbers; floats may be smoothed."""
    return (labels > 0.5).long() if labels.is_floating_point() else labels


def _is_single(outputs: Tensor) -> bool:
    """Return whether outputs are one logit for each example, token or pixel."""
    return outputs.ndim == 1 or outputs.shape[1] == 1


def _without_one(values: Tensor) -> Tensor:
    """Return ``(n, 1, …)`` as ``(n, …)``."""
    return values.squeeze(1) if values.ndim > 1 else values


def _only(calls: Sequence[CrossEntropyCall]) -> CrossEntropyCall | None:
    """Return the first call if all are over the same targets."""
    return calls[0] if calls and all(call.is_over_targets_of(calls[0]) for call in calls) else None


def _classes(outputs: Tensor, targets: Tensor, ignored: int) -> _Predictions:
    is_counted = targets != ignored
    return _Predictions(outputs.argmax(dim=1)[is_counted], targets[is_counted], outputs.shape[1])


def _misfit(name: str, outputs: Tensor, labels: Tensor) -> OffbeatError:
    wanted = tuple(outputs.shape[:1] + outputs.shape[2:])
    return OffbeatError(
        f"{name} needs labels of shape {wanted} for outputs of shape {tuple(outputs.shape)}, but they have shape "
        f"{tuple(labels.shape)}: name other metrics, or none: metrics = []"
    )


def _impossible(name: str) -> OffbeatError:
    return OffbeatError(
        f"{name} needs labels below the model's number of classes, but some are larger: if your own loss leaves them "
        "out, name a metric of your own that does, too, or none: metrics = []"
    )


def _mean(name: str, total: float, number: float) -> float:
    if not number:
        raise OffbeatError(f"{name} is undefined: no target counts, or no label occurs")
    return total / number
