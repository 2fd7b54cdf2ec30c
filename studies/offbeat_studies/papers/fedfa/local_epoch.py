"""FedAvg, FedNova and FedFa with visits as long as the client's data.

A client with more examples takes more steps.
"""

from dataclasses import replace

from torch import Tensor

from offbeat.algorithms import Algorithm, FedAvg, FedFa, FedNova, LocalPlan


class LocalEpoch(Algorithm):
    """An algorithm whose clients take steps in proportion to their examples.

    The average number of steps is that of the plan; each client takes at least one.
    """

    def start(self, model: Tensor, clients: int, data_weights: Tensor | None = None) -> None:
        """Record how much each client has."""
        if data_weights is not None:  # a checkpoint, which begins anew without them, is of the same clients
            self._lengths = (data_weights / data_weights.mean()).tolist()
        super().start(model, clients, data_weights)

    def assign(self, client: int, local: LocalPlan) -> LocalPlan:
        """Return the client's plan."""
        plan = super().assign(client, local)
        return replace(plan, steps=max(1, round(plan.steps * self._lengths[client])))


class EpochFedAvg(LocalEpoch, FedAvg):
    """FedAvg; with ``local.mu`` FedProx."""


class EpochFedNova(LocalEpoch, FedNova):
    """FedNova."""


class EpochFedFa(LocalEpoch, FedFa):
    """FedFa."""
