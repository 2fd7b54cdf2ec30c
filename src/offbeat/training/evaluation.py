"""Evaluation of a model on a test set."""

import math
from collections.abc import Callable
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from offbeat.errors import OffbeatError
from offbeat.inputs import Inputs, divide_inputs, map_inputs
from offbeat.randomness import Purpose, integer
from offbeat.training.accelerator import CPU, Accelerator
from offbeat.training.flat_model import FlatModel
from offbeat.training.max_pooling import fast_max_pooling
from offbeat.training.objectives import Loss, Metrics, Objective, predictions
from offbeat_client.user_code_errors import user_code

_BATCH = 256  # fits into a CPU's cache: twice as fast for convolutions as thousands at once
_GPU_BATCH = 2048


class Evaluator:
    """Mean loss and metrics of a model on a test set.

    Model, loss and metrics get copies, so changes in place are lost. torch's own generator is seeded before each
    evaluation, so equal models have equal results. The model's values are overwritten.

    Args:
        loss: Maps (outputs, labels) to the mean loss of a batch, a tensor of shape ``()``.
        metrics: Functions by name that map all outputs ``(n, …)`` and all labels to one number.
        accelerator: Where the model lies; the examples may be elsewhere.
    """

    def __init__(
        self,
        model: FlatModel,
        *,
        loss: Loss,
        metrics: Metrics,
        inputs: Inputs[Tensor],
        labels: Tensor,
        seed: int,
        accelerator: Accelerator = CPU,
    ) -> None:
        self._model = model
        self._pooling = fast_max_pooling(model.module)
        self._objective = Objective(loss)
        self._metrics = dict(metrics)
        self._accelerator = accelerator
        device = self._accelerator.device
        self._labels = labels
        self._seed = seed
        sizes = _batch_sizes(len(labels), _BATCH if device.type == "cpu" else _GPU_BATCH)
        self._batches = list(
            zip(divide_inputs(lambda part: part.split(sizes), inputs), labels.split(sizes), strict=True)
        )
        # Reused for each batch: new memory from the system costs more time than a small model.
        self._copy = map_inputs(lambda part: torch.empty_like(part[: max(sizes)], device=device), inputs)

    def __call__(self, vector: Tensor) -> tuple[float, dict[str, float]]:
        """Return (mean loss, value of each metric) at ``vector``, ``(d,)``.

        Where the loss is not finite, the model has diverged: the metrics are not computed, but NaN.

        Raises:
            OffbeatError: The model, the loss or a metric fails, the loss is not a tensor of shape ``()``, or a metric
                is not one finite number.
        """
        self._model.load(vector)
        module = self._model.module.eval()
        device = self._accelerator.device
        losses: list[Tensor] = []
        all_outputs: list[Tensor] = []
        what = f"evaluation{' of a single example' if len(self._labels) == 1 else ''}: the model or the loss failed"
        with torch.inference_mode(), self._accelerator.forked_randomness():
            self._accelerator.seed(integer(self._seed, Purpose.EVALUATION))
            for inputs, labels in self._batches:
                with user_code(what), self._accelerator.autocast():
                    copies = map_inputs(lambda part, copy: copy[: len(part)].copy_(part), inputs, self._copy)
                    labels = labels.to(device, copy=True)
                    with self._pooling:
                        outputs = self._objective.apply(module, copies, labels)
                    if self._metrics:
                        all_outputs.append(_check_tensor(predictions(outputs)).clone())
                    losses.append(self._objective.loss_of(outputs, labels))
            # Read once: on a GPU each reading waits for all computations.
            sizes = [len(labels) for _, labels in self._batches]
            values = torch.stack(losses).tolist()
            loss = sum(value * size for value, size in zip(values, sizes, strict=True)) / len(self._labels)
            if not math.isfinite(loss):
                return loss, dict.fromkeys(self._metrics, math.nan)
            if not self._metrics:
                return loss, {}
            outputs, labels = torch.cat(all_outputs), self._labels.to(device)
            return loss, {name: _measure(name, metric, outputs, labels) for name, metric in self._metrics.items()}


def _batch_sizes(examples: int, batch: int) -> list[int]:
    sizes = [batch] * (examples // batch)
    rest = examples % batch
    if rest == 1 and sizes:
        # A layer that normalises by the minibatch needs more than one example.
        sizes[-1] += 1
    elif rest:
        sizes.append(rest)
    return sizes


def _check_tensor(outputs: Any) -> Tensor:
    if isinstance(outputs, Tensor):
        return outputs
    raise OffbeatError(f"the metrics need the model's outputs as one tensor, but they are a {type(outputs).__name__}")


def _measure(name: str, metric: Callable[[Tensor, Tensor], Any], outputs: Tensor, labels: Tensor) -> float:
    with user_code(f"the metric {name} failed"):
        value = metric(outputs.clone(), labels.clone())
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    if not isinstance(value, Real):
        found = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
        raise OffbeatError(f"the metric {name} must be one number, but it is {found}")
    number = float(value)
    if not math.isfinite(number):
        raise OffbeatError(f"the metric {name} is {number}, which is not a finite number")
    return number
