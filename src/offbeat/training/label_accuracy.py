"""Accuracy of a model on the examples of each label."""

from collections.abc import Callable

import torch
from torch import Tensor

from offbeat.training.loss_modules import IGNORED
from offbeat.training.objectives import Metrics, accuracy

_MOST_LABELS = 100


def label_metrics(labels: Tensor, ignored: int = IGNORED) -> Metrics:
    """Return a metric for each label, by its number as text; none for the ignored one.

    It is the share of the label's examples that are predicted. Empty if the labels are not classes, integers ``(n,)``,
    or if there are more than 100.
    """
    if labels.ndim != 1 or labels.dtype.is_floating_point or labels.dtype == torch.bool:
        return {}
    classes = [label for label in labels.unique().tolist() if label != ignored]
    return {str(label): _accuracy_on(label) for label in classes} if len(classes) <= _MOST_LABELS else {}


def _accuracy_on(label: int) -> Callable[[Tensor, Tensor], float]:
    def measure(outputs: Tensor, labels: Tensor) -> float:
        chosen = labels == label
        return accuracy(outputs[chosen], labels[chosen])

    return measure
