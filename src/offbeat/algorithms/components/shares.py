"""Each client's share of the objective."""

from typing import Any

import torch
from torch import Tensor

from offbeat.algorithms.components.component import Component, RunFacts
from offbeat.algorithms.components.hyper_parameters import Weighting


class Shares(Component):
    """The shares p_i of all N clients, which sum to 1.

    They are in proportion to the run's data weights, or 1/N. They are saved, since a run that is resumed gets no data
    weights.

    Args:
        weighting: ``examples`` (p_i by the data weights, 1/N if there are none) or ``uniform``.
    """

    def __init__(self, weighting: Weighting) -> None:
        self.weighting: Weighting = weighting

    def __getitem__(self, client: int) -> float:
        """Return p_i."""
        return self._shares[client]

    def check_run(self, run: RunFacts) -> None:
        _shares(run, self.weighting)

    def start(self, run: RunFacts) -> None:
        self._shares = _shares(run, self.weighting)

    def state_dict(self) -> dict[str, Any]:
        return {"shares": torch.tensor(self._shares, dtype=torch.float64)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._shares: list[float] = state["shares"].tolist()


def _shares(run: RunFacts, weighting: Weighting) -> list[float]:
    if run.data_weights is None or weighting == "uniform":
        return [1.0 / run.clients] * run.clients
    weights: Tensor = run.data_weights.to(torch.float64)
    if weights.shape != (run.clients,) or not bool((weights >= 0).all()) or not 0 < weights.sum() < torch.inf:
        raise ValueError(f"data_weights must be {run.clients} finite numbers of at least 0, not all 0")
    return (weights / weights.sum()).tolist()
