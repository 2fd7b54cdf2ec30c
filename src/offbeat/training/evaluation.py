"""Evaluation of a model on a test set."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from offbeat_core.errors import OffbeatError
from offbeat_core.number_checks import is_number, plain_number
from offbeat_core.randomness import Purpose, integer
from offbeat_core.user_code_errors import user_code
from torch import Tensor

from offbeat.metric_bounds import bounds_of, check_within
from offbeat.model_inputs import Inputs, divide_inputs, map_inputs
from offbeat.process_memory import is_out_of_memory
from offbeat.training.accelerator import CPU, Accelerator
from offbeat.training.batch_metrics import BatchMetric
from offbeat.training.cross_entropy_calls import CrossEntropyCall
from offbeat.training.flat_model import FlatModel
from offbeat.training.fresh_copies import fresh
from offbeat.training.loss_modules import IGNORED
from offbeat.training.max_pooling import fast_max_pooling
from offbeat.training.objectives import Loss, Metrics, accuracy, model_loss, predictions
from offbeat.training.output_trees import copied, joined
from offbeat.training.total_loss import TotalLoss

_BATCH = 256  # fits into a CPU's cache: twice as fast for convolutions as thousands at once
_GPU_BATCH = 2048
_MOST_LABELS = 100


class Evaluator:
    """Loss and metrics of a model on a test set.

    The loss is that of all examples together, whatever the batches. Model, loss and metrics get copies, so changes in
    place are lost, and so is the state of a loss or a metric. torch's own generator is seeded before each evaluation,
    so equal models have equal results. The model's values are overwritten.

    Args:
        loss: Maps (outputs, labels) to the mean loss of a batch, a tensor of shape ``()``.
        metrics: By name, ``BatchMetric``s, or functions that map all outputs ``(n, …)`` and all labels to one number.
        accelerator: Where the model lies; the examples may be elsewhere.
        on_undefined: Gets the error of a metric, which is then left out; None to raise it.
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
        on_undefined: Callable[[OffbeatError], None] | None = None,
    ) -> None:
        self._model = model
        self._pooling = fast_max_pooling(model.module)
        self._loss = loss
        self._metrics = dict(metrics)
        self._accelerator = accelerator
        device = self._accelerator.device
        self._labels = labels
        self._seed = seed
        self._on_undefined = on_undefined
        sizes = _batch_sizes(len(labels), _BATCH if device.type == "cpu" else _GPU_BATCH)
        self._batches = list(
            zip(divide_inputs(lambda part: part.split(sizes), inputs), labels.split(sizes), strict=True)
        )
        # Reused for each batch: new memory from the system costs more time than a small model.
        self._copy = map_inputs(lambda part: torch.empty_like(part[: max(sizes)], device=device), inputs)

    def __call__(self, vector: Tensor) -> tuple[float, dict[str, float]]:
        """Return (loss, value of each metric) at ``vector``, ``(d,)``.

        Where the loss is not finite, the model has diverged: the metrics are not computed, but NaN.

        Raises:
            OffbeatError: The model, the loss or a metric fails, the loss is not a tensor of shape ``()`` or ignores all
                labels, or a metric is not one finite number.
        """
        self._model.load(vector)
        module = self._model.module.eval()
        device = self._accelerator.device
        total = TotalLoss(fresh(self._loss, training=False), len(self._labels))
        metrics = [_Measure(name, fresh(metric, training=False)) for name, metric in self._metrics.items()]
        kept: list[Any] = []
        what = f"evaluation{' of a single example' if len(self._labels) == 1 else ''}: the model or the loss failed"
        with torch.inference_mode(), self._accelerator.forked_randomness():
            self._accelerator.seed(integer(self._seed, Purpose.EVALUATION))
            for inputs, labels in self._batches:
                with user_code(what), self._accelerator.autocast():
                    copies = map_inputs(lambda part, copy: copy[: len(part)].copy_(part), inputs, self._copy)
                    labels = labels.to(device, copy=True)
                    measured = total.objective.measure(
                        module, copies, labels.clone(), [self._pooling], keeps_outputs=True
                    )
                    outputs = predictions(measured.outputs)
                    if self._metrics:
                        _check_tensor(outputs)
                    if total.add(measured, len(labels)) or any(metric.needs_all for metric in metrics):
                        kept.append(copied(outputs))
                calls = measured.calls.shown
                hides_targets = self._loss is model_loss and not calls and _is_per_token(outputs, labels)
                for metric in metrics:
                    metric.add(outputs, labels, None if hides_targets else calls)
            with user_code("evaluation: the loss failed"), self._accelerator.autocast():
                loss = total.value(kept, self._labels)
            if not math.isfinite(loss):
                return loss, dict.fromkeys(self._metrics, math.nan)
            if not metrics:
                return loss, {}
            whole = joined(kept) if kept else None
            return loss, dict(self._defined(metrics, whole, self._labels.to(device)))

    def _defined(
        self, metrics: "Sequence[_Measure]", outputs: Tensor | None, labels: Tensor
    ) -> Iterator[tuple[str, float]]:
        for metric in metrics:
            try:
                yield metric.name, metric.value(outputs, labels)
            except OffbeatError as error:
                if self._on_undefined is None or (error.__cause__ is not None and is_out_of_memory(error.__cause__)):
                    raise
                self._on_undefined(error)


class _Measure:
    """A metric during one evaluation."""

    def __init__(self, name: str, metric: Callable[[Tensor, Tensor], Any]) -> None:
        self.name = name
        self._metric = metric
        self._counts: Tensor | None = None
        self._error: OffbeatError | None = None

    @property
    def needs_all(self) -> bool:
        """True if the metric is a function of all outputs together."""
        return not isinstance(self._metric, BatchMetric)

    def add(self, outputs: Tensor, labels: Tensor, calls: Sequence[CrossEntropyCall] | None) -> None:
        """Count a batch; an error is kept until the value is asked for.

        The calls are None if it is unknown which tokens a model predicts.
        """
        if not isinstance(self._metric, BatchMetric) or self._error is not None:
            return
        try:
            if calls is None:
                raise OffbeatError(
                    f"{self.name} needs to know which tokens the model predicts, but the model computes its loss "
                    "without torch's cross_entropy: use that, or name metrics of your own, or none: metrics = []"
                )
            with user_code(f"the metric {self.name} failed"):
                counts = self._metric.count(outputs, labels, calls)
                self._counts = counts if self._counts is None else self._counts + counts
        except OffbeatError as error:
            self._error = error

    def value(self, outputs: Tensor | None, labels: Tensor) -> float:
        """Return the value, from all outputs and labels if the metric needs them."""
        if self._error is not None:
            raise self._error
        with user_code(f"the metric {self.name} failed"):
            if isinstance(self._metric, BatchMetric):
                assert self._counts is not None
                value: Any = self._metric.value(self._counts)
            else:
                assert outputs is not None
                value = self._metric(outputs.clone(), labels.clone())
        value = plain_number(value)
        if not is_number(value):
            is_tensor = isinstance(value, Tensor)
            found = f"a tensor of shape {tuple(value.shape)}" if is_tensor else f"a {type(value).__name__}"
            raise OffbeatError(f"the metric {self.name} must be one number, but it is {found}")
        number = float(value)
        if not math.isfinite(number):
            raise OffbeatError(f"the metric {self.name} is {number}, which is not a finite number")
        if not isinstance(self._metric, BatchMetric):
            check_within(self.name, number, bounds_of("", self._metric))
        return number


def _batch_sizes(examples: int, batch: int) -> list[int]:
    sizes = [batch] * (examples // batch)
    rest = examples % batch
    if rest == 1 and sizes:
        # A layer that normalises by the minibatch needs more than one example.
        sizes[-1] += 1
    elif rest:
        sizes.append(rest)
    return sizes


def _is_per_token(outputs: Any, labels: Tensor) -> bool:
    return labels.ndim > 1 and isinstance(outputs, Tensor) and labels.shape == outputs.shape[:-1]


def _check_tensor(outputs: Any) -> Tensor:
    if isinstance(outputs, Tensor):
        return outputs
    raise OffbeatError(f"the metrics need the model's outputs as one tensor, but they are a {type(outputs).__name__}")


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
