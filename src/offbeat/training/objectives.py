"""The built-in losses and metrics."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss

from offbeat.errors import OffbeatError

Loss = Callable[[Tensor, Tensor], Tensor]
"""Maps the outputs and the labels of a minibatch to its mean loss, a tensor of shape ``()``."""


@dataclass(frozen=True)
class Metric:
    """A measure of a model's quality.

    ``function`` maps all outputs and labels of a test set, ``(n, …)``, to it.
    """

    name: str  # in a configuration
    function: Callable[[Tensor, Tensor], float]
    higher_is_better: bool


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


LOSSES: dict[str, Loss] = {"cross_entropy": cross_entropy, "mse": mse, "bce": bce}

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in [
        Metric("accuracy", accuracy, higher_is_better=True),
        Metric("mse", _mean_squared_error, higher_is_better=False),
        Metric("mae", _mean_absolute_error, higher_is_better=False),
    ]
}


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
