"""The metrics that are measured where none are named, by the loss and the labels."""

import logging
from typing import Any

from numpy.typing import NDArray

from offbeat.training.loss_modules import Function, name_of_loss
from offbeat.training.objectives import LOSSES

_log = logging.getLogger(__name__)


def default_metrics(loss: str | Function, labels: NDArray[Any]) -> list[str]:
    """Return the names of the default metrics for labels ``(n, …)``.

    They are those of classes, of tokens ``(n, length)``, of masks, or of several labels of 0 and 1. Where there are
    none although the labels are not the targets of a regression, a line says so.
    """
    known = next((name for name, known in LOSSES.items() if known is loss), None)
    name = loss if isinstance(loss, str) else known or name_of_loss(loss)
    chosen = _chosen(name, labels)
    is_regression = labels.dtype.kind == "f" and name not in ("cross_entropy", "nll_loss", "bce", "model")
    if not chosen and not is_regression and name != "mse":
        _log.warning(
            "no metric is measured but the loss, since for labels that are %s of shape %s per example and this loss "
            "there is no default: name some in metrics",
            labels.dtype,
            labels.shape[1:],
        )
    return chosen


def _chosen(loss: str | None, labels: NDArray[Any]) -> list[str]:
    is_one_each = labels.ndim == 1 or labels.shape[1:] == (1,)
    has_numbers = labels.dtype.kind != "f"
    if loss in ("cross_entropy", "nll_loss", "model") and has_numbers:
        if labels.ndim == 1:
            return ["accuracy"]
        return ["accuracy", "perplexity"] if labels.ndim == 2 else ["iou"]
    if loss == "cross_entropy" and labels.ndim == 2:  # a probability for each class
        return ["accuracy"]
    if loss == "bce" and is_one_each:
        return ["accuracy"]
    if loss == "bce" and bool(((labels == 0) | (labels == 1)).all()):
        return ["accuracy", "macro_f1"] if labels.ndim == 2 else ["iou"]
    return []
