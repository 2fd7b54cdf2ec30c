"""The content of Flower's messages: a model and a plan, and a training result."""

# pyright: reportMissingImports=false

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError
from offbeat_core.local_plan import LocalPlan
from offbeat_core.number_checks import LARGEST_COUNT

from offbeat.flower.model_arrays import Arrays

_EXAMPLES = ("num-examples", "num_examples")
_LOSSES = ("train_loss", "train-loss", "loss")


class ReplyError(OffbeatError):
    """A reply that does not hold a training result."""


class Trained(NamedTuple):
    """The result of an app's training.

    Attributes:
        arrays: All arrays of the reply, in its order.
        examples: How many examples the client holds, ≥ 1.
        loss: The mean training loss; None if the reply has none.
    """

    arrays: Arrays
    examples: int
    loss: float | None


def train_content(arrays: Mapping[str, NDArray[Any]], plan: LocalPlan, version: int, *, client_fn: bool) -> RecordDict:
    """Return the content of a message that asks for a training.

    Args:
        arrays: The model's arrays by name.
        plan: The visit's plan.
        version: The version of the model.
        client_fn: Whether the app is a ``ClientApp(client_fn)``, which looks for other names.
    """
    model, config = ("fitins.parameters", "fitins.config") if client_fn else ("arrays", "config")
    record = ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})
    return RecordDict({model: record, config: ConfigRecord(plan_config(plan, version))})


def plan_config(plan: LocalPlan, version: int) -> dict[str, Any]:
    """Return a plan by the names that Flower's apps and strategies use.

    ``server-round`` is counted from 1, as by Flower's strategies.
    """
    config: dict[str, Any] = {
        "server-round": version + 1,
        "lr": list(plan.lr) if isinstance(plan.lr, tuple) else plan.lr,
        "batch-size": plan.batch_size,
        "local-steps": plan.steps,
        "optimizer": plan.optimizer,
        "momentum": plan.momentum,
        "weight-decay": plan.weight_decay,
        "proximal-mu": plan.mu,
    }
    return config if plan.clip_norm is None else {**config, "clip-norm": plan.clip_norm}


def read_trained(content: RecordDict, sent: Iterable[str], shapes: Mapping[str, tuple[int, ...]]) -> Trained:
    """Return the training result in a reply's content.

    Names are lost in a list of arrays, as ``NumPyClient`` returns it; then the order is that of ``sent``. As in
    Flower's strategies, the reply has one ArrayRecord, and the number of examples is called ``num-examples``.

    Args:
        content: The reply's content; nothing in it is trusted.
        sent: The names of the arrays that the app was given.
        shapes: The shapes of the parameters that must be among the arrays.

    Raises:
        ReplyError: The reply has no such result.
    """
    records = list(content.array_records.values())
    if len(records) != 1:
        raise ReplyError(f"the app's reply must have one ArrayRecord, it has {len(records)}")
    arrays = {name: _numpy(name, array) for name, array in records[0].items()}
    names = list(sent)
    if list(arrays) == [str(number) for number in range(len(names))]:  # as Flower names the arrays of a list
        arrays = dict(zip(names, arrays.values(), strict=True))
    for name, shape in shapes.items():
        got = arrays.get(name)
        if got is None or got.shape != shape:
            what = "none" if got is None else f"shape {got.shape}"
            raise ReplyError(f"the app's reply needs {name} as an array of shape {shape}, got {what}")
        if not np.can_cast(got.dtype, np.float64):
            raise ReplyError(f"{name} of the app's reply has numbers of type {got.dtype}: return float32")
    numbers = [*content.metric_records.values(), *content.config_records.values()]
    examples, loss = _find(numbers, _EXAMPLES), _find(numbers, _LOSSES)
    if examples is None or not 1 <= examples <= LARGEST_COUNT or examples != int(examples):
        raise ReplyError(
            f"the app's reply needs a MetricRecord with num-examples, a whole number in 1 … {LARGEST_COUNT}, "
            f"got {'none' if examples is None else examples}"
        )
    return Trained(arrays, int(examples), loss)


def _numpy(name: str, array: Array) -> NDArray[Any]:
    try:
        loaded: Any = array.numpy()
    except (ValueError, TypeError, EOFError, OSError, MemoryError) as error:
        raise ReplyError(f"{name} of the app's reply is not an array: {error}") from None
    if not isinstance(loaded, np.ndarray):
        raise ReplyError(f"{name} of the app's reply is not an array, but a {type(loaded).__name__}")
    return loaded


def _find(records: list[Any], names: tuple[str, ...]) -> float | None:
    """Return the first finite number with one of these names, if there is one."""
    for name in names:
        for record in records:
            value = record.get(name)
            if isinstance(value, int | float) and math.isfinite(value):
                return value
    return None
