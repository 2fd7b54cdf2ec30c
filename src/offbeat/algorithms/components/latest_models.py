"""The average of the models that all clients sent last."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from offbeat.algorithms.components.buffers.aggregate import Entry, check_finite
from offbeat.algorithms.components.buffers.single_updates import stacked
from offbeat.algorithms.components.component import Component, RunFacts


class LatestModels(Component):
    """x = Σ weight_i · y_i, with y_i the model that client i sent last.

    For a client that has sent none, y_i is w_0. A client's weight must always be the same, and all N sum to 1. The
    memory takes a vector for each client that was heard.
    """

    def start(self, run: RunFacts) -> None:
        self._run = run
        self._initial = self._average = run.zeros()
        self._latest: dict[int, Tensor] = {}

    def begin(self, model: Tensor) -> None:
        """Let every client's model be w_0, ``(d,)``."""
        self._initial = model
        # In float64, so that rounding errors of many differences do not add up.
        self._average = model.to(torch.float64)

    def replace(self, entries: Sequence[Entry]) -> Tensor:
        """Put clients' models in place of their last ones; return x, float32 ``(d,)``.

        Raises:
            NotFiniteError: x would not be finite; nothing has changed.
        """
        average, new = self._average.clone(), dict[int, Tensor]()
        for entry in entries:
            client = entry.update.client
            last = new.get(client, self._latest.get(client, self._initial))
            average.add_(entry.vector.to(torch.float64) - last, alpha=entry.weight)
            new[client] = entry.vector
        model = average.float()
        check_finite(model, "the average of the clients' models")
        self._average = average
        self._latest.update(new)
        return model

    def state_dict(self) -> dict[str, Any]:
        clients = sorted(self._latest)
        return {
            "initial": self._initial.clone(),
            "average": self._average.clone(),
            "latest": stacked([self._latest[client] for client in clients], self._run),
            "latest_of": torch.tensor(clients, dtype=torch.int64),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._initial, self._average = state["initial"].clone(), state["average"].clone()
        self._latest = dict(zip(state["latest_of"].tolist(), state["latest"].clone().unbind(), strict=True))
