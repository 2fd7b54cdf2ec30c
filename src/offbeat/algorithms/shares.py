"""Each client's share of the objective."""

import torch
from torch import Tensor


def client_shares(clients: int, data_weights: Tensor | None, weighting: str) -> list[float]:
    """Return the shares p_i of N clients, which sum to 1: proportional to ``data_weights``, ``(N,)``, or 1/N.

    They are 1/N if there are no weights, or if ``weighting`` is ``uniform``.

    Raises:
        ValueError: There are not N weights, one is negative or not finite, or all are 0.
    """
    if data_weights is None or weighting == "uniform":
        return [1.0 / clients] * clients
    weights = data_weights.to(torch.float64)
    if weights.shape != (clients,) or not bool((weights >= 0).all()) or not 0 < weights.sum() < torch.inf:
        raise ValueError(f"data_weights must be {clients} finite numbers of at least 0, not all 0")
    return (weights / weights.sum()).tolist()


def check_weighting(weighting: str) -> None:
    """Raise ``ValueError`` unless the weighting is ``examples`` or ``uniform``."""
    if weighting not in ("examples", "uniform"):
        raise ValueError(f"weighting must be 'examples' or 'uniform', got {weighting!r}")
