"""The workload of a run: model, objective, every client's examples."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

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
        return Examples(gather(self.inputs, chosen), gather(self.labels, chosen))


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
    """

    model: FlatModel
    objective: Objective
    train: Examples
    shards: Sequence[NDArray[np.int64]]
    seed: int
    test: Examples | None = None
    augmentation: AugmentationName | None = None

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
        return Evaluator(self.model, loss=loss, metrics=metrics, inputs=inputs, labels=labels, seed=seed)
