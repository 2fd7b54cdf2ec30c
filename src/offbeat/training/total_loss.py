"""The loss of a model on a test set, from its batches."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from offbeat_core.errors import OffbeatError
from torch import Tensor

from offbeat.training.mean_loss import mean_loss
from offbeat.training.objectives import Loss, Measured, Objective, model_loss, predictions
from offbeat.training.output_trees import is_tree, joined, leaves

_MOST_KEPT = 2**28  # values of all outputs: 1 GiB
_ROUNDING = 1e-5  # relative, of means of float32 in another order


class TotalLoss:
    """The loss on all examples together.

    A mean over examples, or a cross-entropy of torch, is combined from the batches, each by what its mean divides by.
    Any other loss of outputs and labels is also called once on all of them. Where its value is the mean of the batches
    up to rounding, the loss is a mean over examples, and that mean counts; else the value does.

    Args:
        loss: The loss, which calls may change.
        examples: The number of all examples.
    """

    def __init__(self, loss: Loss, examples: int) -> None:
        self.objective = Objective(loss)
        self._examples = examples
        self._losses: list[Tensor] = []
        self._counts: list[Tensor | None] = []
        self._sizes: list[int] = []
        self._is_mean = self.objective.is_mean_over_examples
        self._keeps = False

    def add(self, measured: Measured, examples: int) -> bool:
        """Add a batch; return whether all its outputs are needed for the value."""
        self._losses.append(measured.loss)
        self._counts.append(None if self._is_mean else self._count(measured))
        self._sizes.append(examples)
        if len(self._losses) == 1:
            outputs = predictions(measured.outputs)
            self._keeps = (
                not (self._is_mean or measured.calls.is_result(measured.loss))
                and self.objective.loss is not model_loss
                and is_tree(outputs, examples)
                and sum(part.numel() for part in leaves(outputs)) // examples * self._examples <= _MOST_KEPT
            )
        return self._keeps

    def _count(self, measured: Measured) -> Tensor | None:
        calls, is_models = measured.calls, self.objective.loss is model_loss
        return calls.divisor_of_sums(measured.loss) if is_models and calls.sums else calls.divisor()

    def value(self, outputs: Sequence[Any], labels: Tensor) -> float:
        """Return the loss; ``outputs`` are those of all batches if they are needed.

        Raises ``OffbeatError`` if the loss ignores all labels.
        """
        # Read once: on a GPU each reading waits for all computations.
        losses = torch.stack(self._losses).tolist()
        known = [count for count in self._counts if count is not None]
        counts = torch.stack(known).tolist() if len(known) == len(losses) else [None] * len(losses)
        mean = mean_loss(losses, counts, self._sizes)
        if self._keeps:
            device = self._losses[0].device
            whole = self.objective.loss_of(joined(outputs), labels.to(device, copy=True)).item()
            if mean is None or not math.isclose(whole, mean, rel_tol=_ROUNDING, abs_tol=_ROUNDING**2):
                mean = whole
        if mean is None:
            raise OffbeatError("evaluation: the loss ignores all labels here, so it has no value: give some targets")
        return mean
