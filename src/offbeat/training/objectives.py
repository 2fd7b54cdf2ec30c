"""Objectives: a model's loss and metrics; the built-in ones."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from offbeat_core.errors import OffbeatError, setting
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss

from offbeat.metric_bounds import KNOWN, UNBOUNDED, Bounds, bounds_of
from offbeat.model_inputs import Inputs
from offbeat.training.batch_metrics import Iou, MacroF1, Perplexity, accuracy
from offbeat.training.cross_entropy_calls import CrossEntropyCalls
from offbeat.training.fresh_copies import fresh, has_state, on_device
from offbeat.training.loss_modules import ignored_target, name_of_loss, weight_of
from offbeat.training.output_trees import copied

Loss = Callable[[Tensor, Tensor], Tensor]
"""Maps the outputs and the labels of a minibatch to its mean loss, a tensor of shape ``()``."""

Metrics = Mapping[str, Callable[[Tensor, Tensor], float]]
"""By name, functions of the (outputs, labels) of the whole test set."""


class Measured(NamedTuple):
    """A model's outputs for a minibatch, the loss, and the cross-entropies in it."""

    outputs: Any
    loss: Tensor
    calls: CrossEntropyCalls


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

    @property
    def bounds(self) -> dict[str, Bounds]:
        """The bounds of metrics that have any and are not built in.

        Raises ``OffbeatError`` if they are not a pair of numbers, the lower one first.
        """
        found = {name: bounds_of(name, metric) for name, metric in self.metrics.items()}
        return {name: bounds for name, bounds in found.items() if bounds not in (UNBOUNDED, KNOWN.get(name))}

    def fresh(self) -> "Objective":
        """Return the objective with the loss in its first state, for one visit."""
        return replace(self, loss=fresh(self.loss, training=True)) if has_state(self.loss) else self

    def to(self, device: torch.device) -> "Objective":
        """Return the objective with the tensors of its loss and metrics on a device."""
        if device.type == "cpu":
            return self
        metrics = {name: on_device(metric, device) for name, metric in self.metrics.items()}
        return replace(self, loss=on_device(self.loss, device), metrics=metrics)

    @property
    def is_mean_over_examples(self) -> bool:
        """True if each example surely counts as much, whatever its labels."""
        if self.loss is mse or self.loss is bce:
            return True
        module = type(self.loss).__module__ if not hasattr(self.loss, "__code__") else self.loss.__module__
        is_of_torch = module in ("torch.nn.modules.loss", "torch.nn.functional")
        return is_of_torch and name_of_loss(self.loss) not in ("cross_entropy", "nll_loss")

    def may_weigh(self, labels: Tensor) -> bool:
        """Return whether examples with these labels may count differently in the loss."""
        if self.is_mean_over_examples:
            return False
        if name_of_loss(self.loss) is None:
            return True
        return not labels.is_floating_point() and (
            weight_of(self.loss) is not None or bool((labels == ignored_target(self.loss)).any())
        )

    def measure(
        self,
        module: Callable[..., Any],
        inputs: Inputs[Tensor],
        labels: Tensor,
        forward: Sequence[AbstractContextManager[Any]] = (),
        *,
        notes_calls: bool = True,
        keeps_outputs: bool = False,
    ) -> Measured:
        """Return a module's outputs, their loss, and the cross-entropies in it.

        Args:
            module: The model, or a function in its place.
            inputs: Its inputs.
            labels: The labels, which it may change.
            forward: Contexts for the module only.
            notes_calls: Whether cross-entropies are noted, which takes time.
            keeps_outputs: Whether the loss gets a copy of the outputs, which it may change.
        """
        calls = CrossEntropyCalls()
        noting = calls if notes_calls else nullcontext()
        in_module, in_loss = (noting, nullcontext()) if self.loss is model_loss else (nullcontext(), noting)
        with ExitStack() as contexts:
            for context in (*forward, in_module):
                contexts.enter_context(context)
            outputs = self.apply(module, inputs, labels)
        given = predictions(outputs)
        seen = copied(given) if keeps_outputs else given
        with in_loss:
            return Measured(outputs, self.loss_of(outputs if self.loss is model_loss else seen, labels), calls)

    def apply(self, module: Callable[..., Any], inputs: Inputs[Tensor], labels: Tensor) -> Any:
        """Return what a module returns for inputs.

        Inputs by name are keyword arguments. Only a module that computes the loss itself gets the labels.
        """
        more = {"labels": labels} if self.loss is model_loss else {}
        return module(**inputs, **more) if isinstance(inputs, dict) else module(inputs, **more)

    def loss_of(self, outputs: Any, labels: Tensor) -> Tensor:
        """Return the mean loss, a tensor of shape ``()``, of what ``apply`` has returned.

        Raises ``OffbeatError`` if the loss is something else.
        """
        return check_scalar(self.loss(outputs if self.loss is model_loss else predictions(outputs), labels))


@dataclass(frozen=True)
class Metric:
    """A measure of a model's quality.

    ``function`` maps all outputs and labels of a test set, ``(n, …)``, to it.
    """

    name: str  # in a configuration
    function: Callable[[Tensor, Tensor], float]
    higher_is_better: bool


def model_loss(outputs: Any, labels: Tensor) -> Tensor:
    """Return ``loss`` in the outputs, which the model has computed from the labels."""
    loss = _entry(outputs, "loss")
    if loss is None:
        raise OffbeatError(
            f'{setting("model.loss")} = "model" needs a model that takes labels and returns a loss, as those of '
            f"Hugging Face do, but this one returned a {type(outputs).__name__} without loss: name another loss"
        )
    return loss


def predictions(outputs: Any) -> Any:
    """Return a model's ``logits`` for losses and metrics, or else all its outputs."""
    if isinstance(outputs, Tensor):
        return outputs
    logits = _entry(outputs, "logits")
    return outputs if logits is None else logits


def check_scalar(value: Any) -> Tensor:
    """Return a loss, or raise ``OffbeatError`` if it is not a tensor of shape ``()``."""
    if isinstance(value, Tensor) and value.ndim == 0:
        return value
    found = f"one of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
    raise OffbeatError(f"the loss must be the mean over the minibatch, a tensor of shape (), but it is {found}")


def mse(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the mean squared error of outputs ``(n, …)`` and labels.

    The shapes ``(n,)`` and ``(n, 1)`` count as the same.
    """
    return mse_loss(outputs, _as_outputs("mse", outputs, labels))


def bce(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the mean binary cross-entropy of logits ``(n, …)`` and labels.

    Labels are from 0 to 1, integers or floats.
    """
    return binary_cross_entropy_with_logits(outputs, _as_outputs("bce", outputs, labels))


def _mean_squared_error(outputs: Tensor, labels: Tensor) -> float:
    return (outputs.double() - _as_outputs("mse", outputs, labels).double()).square().mean().item()


def _mean_absolute_error(outputs: Tensor, labels: Tensor) -> float:
    return (outputs.double() - _as_outputs("mae", outputs, labels).double()).abs().mean().item()


LOSSES: dict[str, Loss] = {"cross_entropy": cross_entropy, "mse": mse, "bce": bce, "model": model_loss}

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in [
        Metric("accuracy", accuracy, higher_is_better=True),
        Metric("perplexity", Perplexity(), higher_is_better=False),
        Metric("macro_f1", MacroF1(), higher_is_better=True),
        Metric("iou", Iou(), higher_is_better=True),
        Metric("mse", _mean_squared_error, higher_is_better=False),
        Metric("mae", _mean_absolute_error, higher_is_better=False),
    ]
}


def _entry(outputs: Any, name: str) -> Any:
    return outputs.get(name) if isinstance(outputs, Mapping) else getattr(outputs, name, None)


def _as_outputs(name: str, outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the labels in the outputs' shape and type.

    Torch would broadcast ``(n,)`` and ``(n, 1)`` to ``(n, n)``.
    """
    if labels.shape != outputs.shape:
        if (*labels.shape, 1) != outputs.shape and (*outputs.shape, 1) != labels.shape:
            raise OffbeatError(
                f"{name} needs labels of the outputs' shape {tuple(outputs.shape)}, "
                f"but they have shape {tuple(labels.shape)}"
            )
        labels = labels.reshape(outputs.shape)
    return labels.to(outputs.dtype) if outputs.is_floating_point() else labels
