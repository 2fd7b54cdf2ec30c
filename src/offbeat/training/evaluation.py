"""How good a model is on a test set."""

from collections.abc import Callable

import torch
from torch import Tensor

from offbeat.training.flat_model import FlatModel

_BATCH = 2048


class Evaluator:
    """Mean loss and accuracy of a model on a test set.

    Args:
        model: Its values are overwritten.
        loss: Maps (outputs, labels) to the mean loss of a batch.
        inputs: Test inputs, ``(n, …)``.
        labels: Test labels, int64 ``(n,)``.
    """

    def __init__(
        self, model: FlatModel, *, loss: Callable[[Tensor, Tensor], Tensor], inputs: Tensor, labels: Tensor
    ) -> None:
        self._model = model
        self._loss = loss
        self._inputs = inputs
        self._labels = labels

    def __call__(self, vector: Tensor) -> tuple[float, float]:
        """Return (mean loss, share of examples whose largest output is the right one) at ``vector``, ``(d,)``."""
        self._model.load(vector)
        module = self._model.module.eval()
        loss, correct = 0.0, 0
        with torch.inference_mode():
            for inputs, labels in zip(self._inputs.split(_BATCH), self._labels.split(_BATCH), strict=True):
                outputs = module(inputs)
                loss += self._loss(outputs, labels).item() * len(labels)
                correct += int((outputs.argmax(dim=1) == labels).sum())
        return loss / len(self._labels), correct / len(self._labels)
