"""Small ClientApps."""

from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from torch import nn

EXAMPLES = 7


def net() -> nn.Module:
    """Return a model with parameters, two names for one of them, and statistics."""
    first = nn.Linear(2, 2)
    model = nn.Sequential(first, nn.BatchNorm1d(2), first)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1.0)
    return model


def reply(message: Message, arrays: Any, **metrics: Any) -> Message:
    content = {"arrays": arrays, "metrics": MetricRecord({"num-examples": EXAMPLES, **metrics})}
    return Message(RecordDict(content), reply_to=message)


def app_of(train: Any) -> ClientApp:
    app = ClientApp()
    app.train()(train)
    return app


def minus_lr(message: Message, context: Context) -> Message:
    """Subtracts lr from every parameter, and counts its trainings in the context."""
    state = message.content["arrays"].to_torch_state_dict()
    lr = message.content["config"]["lr"]
    trained = {name: array - lr if array.is_floating_point() else array + 1 for name, array in state.items()}
    count = context.state["count"]["trainings"] if "count" in context.state else 0
    context.state["count"] = ConfigRecord({"trainings": count + 1})
    return reply(message, ArrayRecord(trained), train_loss=0.5, trainings=count + 1)


class Subtract(NumPyClient):
    """The same as a NumPyClient; its model has no names."""

    def fit(self, parameters: list[Any], config: dict[str, Any]) -> tuple[list[Any], int, dict[str, Any]]:
        trained = [np.asarray(array - config["lr"], array.dtype) for array in parameters]
        return trained, EXAMPLES, {"loss": 0.25}
