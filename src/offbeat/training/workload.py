"""The workload of a run: model, objective, every client's examples."""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError
from torch import Tensor

from offbeat.model_inputs import Inputs, map_inputs, name_inputs
from offbeat.training.accelerator import CPU, Accelerator
from offbeat.training.augmentation import AugmentationName
from offbeat.training.evaluation import Evaluator, label_metrics
from offbeat.training.flat_model import FlatModel
from offbeat.training.loss_modules import ignored_target
from offbeat.training.minibatches import gather
from offbeat.training.objectives import Metrics, Objective, accuracy
from offbeat.training.trainer_names import TRAINING_LOSS

Evaluate = Callable[[Tensor], tuple[float, dict[str, float]]]
"""Maps a model's vector ``(d,)`` to its test loss and its metrics."""

_MOST_TRAINING_EXAMPLES = 10_000  # on which the training loss is measured


class Examples(NamedTuple):
    """Inputs and labels, ``(n, …)`` each.

    Inputs by name are the model's keyword arguments.
    """

    inputs: Inputs[Tensor]
    labels: Tensor

    def map(self, function: Callable[[Tensor], Tensor]) -> "Examples":
        """Return the examples with each tensor replaced by its function value."""
        return Examples(map_inputs(function, self.inputs), function(self.labels))

    def take(self, chosen: Tensor) -> "Examples":
        """Return copies of the examples at indices, int64 of any shape."""
        chosen = chosen.to(self.labels.device)
        return self.map(lambda part: gather(part, chosen))

    def to(self, device: torch.device) -> "Examples":
        """Return the examples on a device; copies only if they are elsewhere."""
        return self.map(lambda part: part.to(device, non_blocking=True))

    @property
    def nbytes(self) -> int:
        """The bytes that the examples take."""
        return sum(part.nbytes for part in name_inputs("inputs", self.inputs).values()) + self.labels.nbytes


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
        held_out: For each client the indices of the examples that it does not train on; empty if there are none.
        may_weigh: Whether the training loss may be a mean in which examples count differently; None to find out.
    """

    model: FlatModel
    objective: Objective
    train: Examples
    shards: Sequence[NDArray[np.int64]]
    seed: int
    test: Examples | None = None
    augmentation: AugmentationName | None = None
    accelerator: Accelerator = CPU
    held_out: Sequence[NDArray[np.int64]] = ()
    may_weigh: bool | None = None

    def __post_init__(self) -> None:
        if self.may_weigh is None:  # once, before the labels are on a device
            object.__setattr__(self, "may_weigh", self.objective.may_weigh(self.train.labels))

    def to(self, accelerator: Accelerator, *, with_data: bool = True) -> "Workload":
        """Return the workload on another processor.

        The model's module itself moves. Without ``with_data`` the examples stay where they are, and each minibatch is
        copied when it is needed.
        """
        device = accelerator.device
        objective = self.objective.to(device)
        moved = replace(self, model=self.model.to(device), objective=objective, accelerator=accelerator)
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
            examples = examples.map(Tensor.pin_memory)
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
        on_training = self._evaluator(self._some_training_examples(), {})

        def evaluate(vector: Tensor) -> tuple[float, dict[str, float]]:
            loss, metrics = on_test(vector)
            return loss, {**metrics, TRAINING_LOSS: on_training(vector)[0]}

        return evaluate

    def accuracy_by_label(self, vector: Tensor) -> dict[str, float]:
        """Return the accuracy of a model ``(d,)`` on the test examples of each label.

        Empty if the objective does not measure the accuracy, the labels are not classes, or the model has diverged.
        """
        ignored = ignored_target(self.objective.loss)
        metrics = label_metrics(self.test.labels, ignored) if self.test is not None else {}
        if not metrics or self.objective.metrics.get("accuracy") is not accuracy:
            return {}
        assert self.test is not None
        _, values = self._evaluator(self.test, metrics)(vector)
        return {} if any(map(math.isnan, values.values())) else values

    def measure_on_client(
        self, client: int, vector: Tensor, on_undefined: Callable[[OffbeatError], None] | None = None
    ) -> tuple[float, dict[str, float]]:
        """Return the loss and metrics of a model ``(d,)`` on a client's held-out examples.

        A metric that is undefined is left out, and its error given to ``on_undefined``; without that it is raised.
        """
        held_out = self.train.take(torch.from_numpy(self.held_out[client]))
        return self._evaluator(held_out, self.objective.metrics, on_undefined)(vector)

    def _some_training_examples(self) -> Examples:
        """Return evenly spaced examples of those that are not held out."""
        held_out = np.concatenate([np.empty(0, np.int64), *self.held_out])
        trained = np.setdiff1d(np.arange(len(self.train.labels)), held_out, assume_unique=True)
        chosen = min(len(trained), _MOST_TRAINING_EXAMPLES)
        return self.train.take(torch.from_numpy(trained)[torch.arange(chosen) * len(trained) // chosen])

    def _evaluator(
        self, examples: Examples, metrics: Metrics, on_undefined: Callable[[OffbeatError], None] | None = None
    ) -> Evaluator:
        return Evaluator(
            self.model,
            loss=self.objective.loss,
            metrics=metrics,
            inputs=examples.inputs,
            labels=examples.labels,
            seed=self.seed,
            accelerator=self.accelerator,
            on_undefined=on_undefined,
        )


def as_tensor(array: NDArray[Any]) -> Tensor:
    """Return an array as a tensor in the same memory."""
    with warnings.catch_warnings():
        # A file larger than the memory can only be mapped read-only; models and losses get copies.
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return torch.from_numpy(array)
