"""The loss on the training set as a metric."""

import torch
from torch import Tensor

from offbeat.training.evaluation import Evaluator
from offbeat.training.metric_names import TRAINING_LOSS

EXAMPLES = 10_000
"""The largest number of training examples that it uses."""


class TrainingLossEvaluator:
    """A test set evaluator whose metrics include the loss on training examples."""

    def __init__(self, test: Evaluator, training: Evaluator) -> None:
        self._test = test
        self._training = training

    def __call__(self, vector: Tensor) -> tuple[float, dict[str, float]]:
        """Return the mean loss and the value of each metric at ``vector``, ``(d,)``."""
        loss, metrics = self._test(vector)
        training_loss, _ = self._training(vector)
        return loss, {**metrics, TRAINING_LOSS: training_loss}


def evenly_spaced(number: int) -> Tensor:
    """Return indices of ``EXAMPLES`` evenly spaced examples, or all of fewer."""
    chosen = min(number, EXAMPLES)
    return torch.arange(chosen) * number // chosen
