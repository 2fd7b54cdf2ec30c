"""The model, the same at the server and at all sites."""

from torch import nn


def net() -> nn.Module:
    """Return softmax regression on 64 pixels."""
    return nn.Linear(64, 10)
