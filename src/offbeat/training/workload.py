"""The workload of a run: model, objective, every client's examples."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from offbeat.training.accelerator import CPU, Accelerator
from offbeat.training.augmentation import AugmentationName
from offbeat.training.evaluation import Evaluator
from offbeat.training.flat_model import FlatModel
from offbeat.training.minibatches import gather
from offbeat.training.training_loss import TrainingLossEvaluator, choose_evenly

Loss = Callable[[Tensor, Tensor], Tensor]
"""Maps (outputs, labels) to the mean loss of a minibatch, a tensor of shape ``()``."""

Metrics = Mapping[str, Callable[[Tensor, Tensor], float]]
"""By name, functions of the (outputs, labels) of the whole test set."""

Evaluate = Callable[[Tensor], tuple[float, dict[str, float]]]
"""Maps a model's vector ``(d,)`` to its test loss and its metrics."""


class Examples(NamedTuple):
    """Inputs and labels, ``(n, …)`` each."""

    inputs: Tensor
    labels: Tensor

    def take(self, chosen: Tensor) -> "Examples":
        """Return copies of the examples at indices, int64 of any shape."""
        chosen = chosen.to(self.labels.device)
        return Examples(gather(self.inputs, chosen), gather(self.labels, chosen))

    def to(self, device: torch.device) -> "Examples":
        """Return the examples on a device; copies only if they are elsewhere."""
        return Examples(self.inputs.to(device, non_blocking=True), self.labels.to(device, non_blocking=True))

    @property
    def nbytes(self) -> int:
        """The bytes that the examples take."""
        return self.inputs.nbytes + self.labels.nbytes


@dataclass(frozen=True)
class Objective:
    """A loss and the metrics that are measured beside it.

    Attributes:
        loss: What clients minimise.
        metrics: Measured on the test set.
        training_loss: Whether the loss on training examples is measured, too.
    """

    loss: Loss
    metrics: Metrics = field(default_factory=dict)
    training_loss: bool = False


@dataclass(frozen=True, eq=False)
class Workload:
    """The model, the objective and the data of a run.

    Attributes:
        model: The initial model; training and evaluation overwrite its values.
        objective: The loss and the metrics.
        train: All clients' examples.
        shards: For each client the indices of its examples, int64 ``(n_i,)``.
        seed: The run's seed.
        test: The test set; None where nothing is measured.
        augmentation: How training images are changed at random; None if they are not.
        accelerator: The processor on which the model lies, and its arithmetic.
    """

    model: FlatModel
    objective: Objective
    train: Examples
    shards: Sequence[NDArray[np.int64]]
    seed: int
    test: Examples | None = None
    augmentation: AugmentationName | None = None
    accelerator: Accelerator = CPU

    def to(self, accelerator: Accelerator, *, with_data: bool = True) -> "Workload":
        """Return the workload on another processor.

        The model's module itself moves. Without ``with_data`` the examples stay where they are, and each minibatch is
        copied when it is needed.
        """
        device = accelerator.device
        moved = replace(self, model=self.model.to(device), accelerator=accelerator)
        if not with_data:
            return moved
        test = None if self.test is None else self.test.to(device)
        return replace(moved, train=self.train.to(device), test=test)

    def minibatch(self, chosen: Tensor) -> Examples:
        """Return copies of training examples at indices, where the model lies."""
        examples = self.train.take(chosen)
        device = self.accelerator.device
        # From pinned memory a GPU copies while the CPU gathers the next minibatch.
        if self.accelerator.is_cuda and not examples.labels.is_cuda:
            examples = Examples(examples.inputs.pin_memory(), examples.labels.pin_memory())
        return examples.to(device)

    def examples(self, client: int) -> int:
        """Return the client's number of examples, n_i."""
        return len(self.shards[client])

    def evaluator(self) -> Evaluate:
        """Return the function that measures a model ``(d,)`` on the test set."""
        assert self.test is not None
        on_test = self._evaluator(self.test, self.objective.metrics)
        if not self.objective.training_loss:
            return on_test
        return TrainingLossEvaluator(on_test, self._evaluator(Examples(*choose_evenly(*self.train)), {}))

    def _evaluator(self, examples: Examples, metrics: Metrics) -> Evaluator:
        inputs, labels = examples
        loss, seed = self.objective.loss, self.seed
        return Evaluator(
            self.model,
            loss=loss,
            metrics=metrics,
            inputs=inputs,
            labels=labels,
            seed=seed,
            accelerator=self.accelerator,
        )
