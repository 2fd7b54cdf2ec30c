"""The plans that an algorithm refuses, since its formula holds for others.

They have AdamW, step sizes that decay, or steps that depend on the client.
"""

import pytest
import torch
from offbeat_core.local_plan import Epochs
from offbeat_core.lr_decay import inverse_square_root

from offbeat.algorithms import ALGORITHMS, FedFa, FedLuck, LocalPlan
from offbeat.coordinator import Coordinator

CLIENTS = 6
PLANS = {
    "adamw": LocalPlan(1, 1, 0.1, optimizer="adamw"),
    "decay": LocalPlan(1, 1, 0.1, lr_decay=inverse_square_root()),
    "epochs": LocalPlan(1, 1, 0.1, steps_by=Epochs(2)),
}
REFUSED = {
    ("fednova", "adamw"): "FedNova's a_i are weights of SGD's gradients: leave optimizer out",
    ("scaffold", "adamw"): "SCAFFOLD's c_i are means of plain gradients: leave compression, momentum, mu and optimizer",
    ("ace", "decay"): "ace averages updates of old and new versions, made with one lr: leave lr_decay out",
    ("ca2fl", "decay"): "ca2fl averages updates of old and new versions, made with one lr: leave lr_decay out",
    ("feddyn", "adamw"): "FedDyn's clients take plain steps: leave compression, momentum, mu and optimizer",
    (
        "ringleader",
        "decay",
    ): "ringleader averages updates of old and new versions, made with one lr: leave lr_decay out",
    ("mifa", "decay"): "mifa averages updates of old and new versions, made with one lr: leave lr_decay out",
    ("fedlaavg", "decay"): "fedlaavg averages updates of old and new versions, made with one lr: leave lr_decay out",
    (
        "async_comm_sgd",
        "decay",
    ): "a visit of AsyncCommSGD lasts for several versions: set step_sizes in place",
    ("fedluck", "epochs"): "FedLuck chooses the number of steps: set local.steps to a number, for unmeasured clients$",
    ("fedcompass", "epochs"): "FedCompass chooses the number of steps: set local.steps to any number$",
    ("sequential_sgd", "epochs"): "sequential SGD takes cohort · local.steps steps: set local.steps to a number$",
}


def begin(algorithm, plan):
    """Give work to the clients of a run with this plan."""
    clients = 1 if algorithm.pooled else CLIENTS
    coordinator = Coordinator(algorithm, torch.zeros(2), clients=clients, local=plan, examples=[3] * clients)
    for client in range(clients):
        coordinator.present(0.0, client)
    return coordinator.assign(0.0)


@pytest.mark.parametrize("what", PLANS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_each_algorithm_takes_or_refuses_a_plan(name, what):
    kind = ALGORITHMS[name]

    def make():
        return kind(cohort=2) if hasattr(kind, "cohort") else kind()

    if (name, what) in REFUSED:
        with pytest.raises(ValueError, match=f"^{REFUSED[name, what]}"):
            begin(make(), PLANS[what])
        begin(make(), LocalPlan(1, 1, 0.1))
    else:
        assert {assignment.plan.optimizer for assignment in begin(make(), PLANS[what])} == {PLANS[what].optimizer}


@pytest.mark.parametrize("kind", [FedFa, FedLuck])
def test_normalised_updates_are_those_of_sgd(kind):
    with pytest.raises(ValueError, match="normalise are weights of SGD's gradients: leave normalise or optimizer out"):
        begin(kind(normalise=True), PLANS["adamw"])
    begin(kind(normalise=True), PLANS["decay"])
