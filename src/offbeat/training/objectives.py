"""Objectives: a model's loss and metrics; the built-in ones."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss

from offbeat.errors import OffbeatError
from offbeat.inputs import Inputs

Loss = Callable[[Tensor, Tensor], Tensor]
"""Maps the outputs and the labels of a minibatch to its mean loss, a tensor of shape ``()``."""

Metrics = Mapping[str, Callable[[Tensor, Tensor], float]]
"""By name, functions of the (outputs, labels) of the whole test set."""


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
            'model.loss = "model" needs a model that takes labels and returns a loss, as those of Hugging Face do, but '
            f"this one returned a {type(outputs).__name__} without loss: name another loss"
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


def accuracy(outputs: Tensor, labels: Tensor) -> float:
    """Return the share of correct predictions.

    Outputs ``(n, classes, …)`` predict the class with the largest output, the first of equals; outputs ``(n,)`` or
    ``(n, 1)`` are logits of label 1 against label 0 and predict 1 where they are above 0.

    Raises:
        OffbeatError: The shape of the labels is not that of the predictions.
    """
    if outputs.ndim == 1 or outputs.shape[1:] == (1,):
        predicted = (outputs > 0).flatten().long()
        # Labels (n, 1) count as (n,) here.
        labels = labels.flatten() if labels.shape[1:] == (1,) else labels
    else:
        predicted = outputs.argmax(dim=1)
    if labels.shape != predicted.shape:
        raise OffbeatError(
            f"accuracy needs labels of shape {tuple(predicted.shape)} for outputs of shape {tuple(outputs.shape)}, "
            f"but they have shape {tuple(labels.shape)}"
        )
    return int((predicted == labels).sum()) / labels.numel()


def _mean_squared_error(outputs: Tensor, labels: Tensor) -> float:
    return (outputs.double() - _as_outputs("mse", outputs, labels).double()).square().mean().item()


def _mean_absolute_error(outputs: Tensor, labels: Tensor) -> float:
    return (outputs.double() - _as_outputs("mae", outputs, labels).double()).abs().mean().item()


LOSSES: dict[str, Loss] = {"cross_entropy": cross_entropy, "mse": mse, "bce": bce, "model": model_loss}

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in [
        Metric("accuracy", accuracy, higher_is_better=True),
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
