"""The built-in client: local SGD on its own examples by the simulator's trainer."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from offbeat_client.visit import Evaluate, Fitted, Visit
from offbeat_core.errors import OffbeatError, did_you_mean
from torch import Tensor, nn

from offbeat.data.user_examples import as_array, read_examples
from offbeat.model_inputs import find_inputs, name_inputs
from offbeat.training.accelerator import Accelerator, choose_device
from offbeat.training.default_metrics import default_metrics
from offbeat.training.evaluation import Evaluator
from offbeat.training.flat_model import FlatModel, refuse_running_statistics
from offbeat.training.loss_modules import check_loss
from offbeat.training.objectives import LOSSES, METRICS, Loss, Metrics, Objective
from offbeat.training.trainers.backend import Job, Result
from offbeat.training.trainers.loop import LoopBackend
from offbeat.training.workload import Examples, Workload, as_tensor

_log = logging.getLogger(__name__)

_BATCH_NORM = 'make it with track_running_stats=False, as the server does with model.batch_norm = "local"'


class LocalSGD:
    """A client that trains a module by the visit's plan.

    Its result equals that of the simulator's loop trainer on the same examples, bit for bit.

    Args:
        module: Its trainable parameters are those of the server's model, by name and shape; it is changed.
        loss: Maps (outputs, labels) to the mean loss of a minibatch; or a built-in loss's name, such as ``model``.
        data: The client's inputs and labels, ``(n, …)`` each, as a tuple of tensors or arrays; a dict of inputs is
            keyword arguments. Or a map-style data set of examples of one shape, PyTorch's or Hugging Face's. Floats
            become float32; classes and inputs of int32 become int64.
        held_out: Inputs and labels, like ``data``, that it does not train on; with them it evaluates versions.
        metrics: Functions by name that map all outputs and labels of ``held_out`` to one number, or names of built-in
            metrics; None for those of ``default_metrics``.
        device: Where it trains: ``auto``, ``cpu``, ``cuda``, ``cuda:1`` or ``mps``.

    Attributes:
        evaluate: Measures the loss and the metrics of a model; None without ``held_out``.
        metrics: The metrics, by name.

    Raises:
        OffbeatError: The module cannot be trained this way, or the numbers of inputs and labels differ.

    Examples:
        >>> inputs, labels = torch.randn(80, 64), torch.arange(80) % 10
        >>> client = LocalSGD(nn.Linear(64, 10), "cross_entropy", (inputs, labels), held_out=(inputs[:20], labels[:20]))
        >>> client.examples
        80
    """

    corrects_gradients = True

    def __init__(
        self,
        module: nn.Module,
        loss: Loss | str,
        data: Any,
        *,
        held_out: Any = None,
        metrics: Metrics | Sequence[str] | None = None,
        device: str = "cpu",
    ) -> None:
        refuse_running_statistics(module, _BATCH_NORM)
        self._model = FlatModel(module)
        if isinstance(loss, str) and loss not in LOSSES:
            raise OffbeatError(f"loss = {loss!r}: {did_you_mean(loss, LOSSES)}, or pass a function")
        if not isinstance(loss, str):
            check_loss("loss", loss)
        chosen = LOSSES[loss] if isinstance(loss, str) else loss
        self._data = _examples(data, "data")
        self._held_out = None if held_out is None else _examples(held_out, "held_out")
        if metrics is None:
            metrics = [] if self._held_out is None else default_metrics(chosen, self._held_out.labels.numpy())
        self.metrics = _metrics_of(metrics)
        self._given = Objective(chosen, self.metrics)
        self.evaluate: Evaluate[Tensor] | None = None if held_out is None else self._evaluate
        self.to(device)

    def to(self, device: str) -> None:
        """Train on another device from the next visit on.

        Raises ``OffbeatError`` if it is not there.
        """
        self._accelerator = Accelerator(choose_device(device))
        self._model = self._model.to(self._accelerator.device)
        self._objective = self._given.to(self._accelerator.device)
        self._data = self._data.to(self._accelerator.device)
        if self._held_out is not None:
            self._held_out = self._held_out.to(self._accelerator.device)

    @property
    def examples(self) -> int:
        """The number of examples that the client holds."""
        return len(self._data.labels)

    def fit(self, model: dict[str, Tensor], visit: Visit) -> Fitted:
        """Train, in an urgent visit only to the end of the step that it is at.

        Raises:
            OffbeatError: The server's model is another than the module; or the module or the loss fails.
        """
        self._check(model)
        start = self._vector(model)
        offset = None if visit.offset is None else self._vector(visit.offset)
        objective = _UntilUrgent(self._objective.loss, visit=visit)
        # The backend finds the examples by the client's number, which the random numbers depend on too.
        shards = [np.arange(self.examples)] * (visit.client + 1)
        backend = LoopBackend(
            Workload(self._model, objective, self._data, shards, visit.seed, accelerator=self._accelerator)
        )
        job = Job(visit.client, visit.number, visit.version, start, visit.plan, "params", offset)
        try:
            with self._accelerator.numerics():
                result = backend.train([job])[0]
        except _UrgentError:
            result = Result(self._model.vector.clone(), backend.mean_loss().item())
        return Fitted(self._model.named(result.vector), self.examples, len(backend.steps), loss=result.loss)

    def _evaluate(self, model: dict[str, Tensor]) -> tuple[dict[str, float], int]:
        """Return the loss and the metrics on the held-out examples, and their number."""
        assert self._held_out is not None
        self._check(model)
        evaluator = Evaluator(
            self._model,
            loss=self._objective.loss,
            metrics=self._objective.metrics,
            inputs=self._held_out.inputs,
            labels=self._held_out.labels,
            seed=0,
            accelerator=self._accelerator,
            on_undefined=lambda error: _log.warning("a metric is left out: %s", error),
        )
        with self._accelerator.numerics():
            loss, metrics = evaluator(self._vector(model))
        return {"loss": loss, **metrics}, len(self._held_out.labels)

    def _vector(self, named: dict[str, Tensor]) -> Tensor:
        vector = torch.cat([named[name].reshape(-1) for name in self._model.named(self._model.vector)])
        return vector.to(self._accelerator.device)

    def _check(self, model: dict[str, Tensor]) -> None:
        own = self._model.named(self._model.vector)
        shapes, given = ({name: tuple(value.shape) for name, value in part.items()} for part in (own, model))
        if shapes != given:
            name = min(name for name in {*shapes, *given} if shapes.get(name) != given.get(name))
            raise OffbeatError(
                f"the server's model is another than this module: {name} has shape {given.get(name, 'none')} there "
                f"and {shapes.get(name, 'none')} here"
            )


def _examples(data: Any, name: str) -> Examples:
    """Return the examples of a data set, or of a pair of inputs and labels."""
    inputs, labels = data if isinstance(data, tuple) and len(data) == 2 else read_examples(data, name)
    inputs = dict(inputs) if isinstance(inputs, Mapping) else inputs
    tensors = {key: _input(_tensor(part, f"{name}, {key}")) for key, part in name_inputs("inputs", inputs).items()}
    targets = _labels(_tensor(labels, f"{name}, labels"))
    for key, part in tensors.items():
        if not 1 <= len(part) == len(targets):
            raise OffbeatError(
                f"a client needs examples, a label for each: got {len(part)} {key}, {len(targets)} labels"
            )
    for key, part in {**tensors, "labels": targets}.items():
        if part.is_floating_point() and not part.isfinite().all():
            example = int((~part.isfinite()).nonzero()[0, 0])
            raise OffbeatError(f"{name}: NaN or infinity in the {key} of example {example}: remove or correct it")
    return Examples(find_inputs("inputs", tensors), targets)


def _tensor(values: Any, where: str) -> Tensor:
    if isinstance(values, Tensor):
        return values
    array = as_array(values, where, is_batch=True)
    try:
        return as_tensor(np.ascontiguousarray(array))
    except TypeError as error:
        raise OffbeatError(f"{where}: is an array of {array.dtype}: make it numbers") from error


def _input(tensor: Tensor) -> Tensor:
    """Return inputs as ``read_examples`` does; the model may cast others (uint8)."""
    if tensor.is_floating_point():
        return tensor.float()
    return tensor.long() if tensor.dtype == torch.int32 else tensor


def _labels(tensor: Tensor) -> Tensor:
    """Return labels in the types of ``read_examples``, except bool and complex ones."""
    if tensor.is_floating_point():
        return tensor.float()
    return tensor if tensor.dtype == torch.bool or tensor.is_complex() else tensor.long()


def _metrics_of(metrics: Metrics | Sequence[str]) -> Metrics:
    if isinstance(metrics, Mapping):
        return metrics
    for name in metrics:
        if name not in METRICS:
            raise OffbeatError(f"metrics: {name!r}: {did_you_mean(name, METRICS)}, or pass functions by name")
    return {name: METRICS[name].function for name in metrics}


class _UrgentError(OffbeatError):
    """The visit became urgent after at least one step; the trainer lets it through."""


@dataclass(frozen=True, kw_only=True)
class _UntilUrgent(Objective):
    """A loss that ends an urgent visit where a step would begin."""

    visit: Visit
    begun: list[None] = field(default_factory=list)  # an entry for each step

    def loss_of(self, outputs: Any, labels: Tensor) -> Tensor:
        if self.begun and self.visit.urgent.is_set():
            raise _UrgentError
        self.begun.append(None)
        return super().loss_of(outputs, labels)
