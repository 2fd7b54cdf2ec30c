"""The server's step from the averaged delta: plain, or by ``torch.optim``.

Reddi et al., "Adaptive Federated Optimization" (ICLR 2021), treat the averaged delta as a gradient and give it to
an optimiser on the server. ``momentum`` is their FedAvgM, ``adagrad`` FedAdagrad and ``adam`` FedAdam, with one
difference: ``torch.optim.Adam`` corrects the bias of moments that start at zero, the paper's Algorithm 2 does not.
FedYogi is missing, since torch has no Yogi.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from offbeat_core.number_checks import check_not_negative, check_positive, is_number, plain_number
from torch import Tensor

from offbeat.algorithms.components.component import Component, RunFacts


@dataclass(frozen=True)
class ServerOptimizer:
    """The optimiser of the server's steps, whose step size is ``server_lr``."""

    name: str
    parameters: dict[str, float]

    def make(self, parameter: Tensor, lr: float) -> torch.optim.Optimizer:
        """Return a fresh ``torch.optim`` optimiser of this kind for one parameter vector."""
        return _MAKERS[self.name]([parameter], lr, **self.parameters)


def momentum(beta: float = 0.9) -> ServerOptimizer:
    """FedAvgM: ``m ← beta·m + mean delta``, ``w ← w − server_lr·m``; 0 ≤ beta < 1."""
    return ServerOptimizer("momentum", {"beta": _check_beta("beta", beta)})


def adam(beta1: float = 0.9, beta2: float = 0.99, epsilon: float = 1e-3) -> ServerOptimizer:
    """FedAdam, the paper's defaults; ``epsilon`` > 0 is τ, the degree of adaptivity."""
    parameters = {"beta1": _check_beta("beta1", beta1), "beta2": _check_beta("beta2", beta2)}
    return ServerOptimizer("adam", {**parameters, "epsilon": check_positive("epsilon", epsilon)})


def adagrad(initial: float = 0.0, epsilon: float = 1e-3) -> ServerOptimizer:
    """FedAdagrad; ``initial`` ≥ 0 is the sum of squares to begin with."""
    initial, epsilon = check_not_negative("initial", initial), check_positive("epsilon", epsilon)
    return ServerOptimizer("adagrad", {"initial": initial, "epsilon": epsilon})


SERVER_OPTIMIZERS: dict[str, Callable[..., ServerOptimizer]] = {
    make.__name__: make for make in (momentum, adam, adagrad)
}

_MAKERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "momentum": lambda parameters, lr, beta: torch.optim.SGD(parameters, lr=lr, momentum=beta),
    "adam": lambda parameters, lr, beta1, beta2, epsilon: torch.optim.Adam(
        parameters, lr=lr, betas=(beta1, beta2), eps=epsilon
    ),
    "adagrad": lambda parameters, lr, initial, epsilon: torch.optim.Adagrad(
        parameters, lr=lr, initial_accumulator_value=initial, eps=epsilon
    ),
}


class ServerStep(Component):
    """The step from ``w_t`` to ``w_{t+1}`` by the averaged delta.

    Without an optimiser ``w_{t+1} = w_t − lr · mean delta``; lr is the algorithm's ``server_lr``.
    """

    def __init__(self, optimizer: ServerOptimizer | None, lr: float) -> None:
        self._kind = optimizer
        self._lr = lr

    def start(self, run: RunFacts) -> None:
        self._parameter = run.zeros() if self._kind else torch.zeros(0)
        self._optimizer = self._kind.make(self._parameter, self._lr) if self._kind else None

    def __call__(self, model: Tensor, mean_delta: Tensor) -> Tensor:
        """Return the next model ``(d,)``, a new tensor."""
        if self._optimizer is None:
            return model.sub(mean_delta, alpha=self._lr)
        self._parameter.copy_(model)
        self._parameter.grad = mean_delta
        self._optimizer.step()
        self._parameter.grad = None
        return self._parameter.clone()

    def state_dict(self) -> dict[str, Any]:
        """Return the optimiser's moments and counters; empty without an optimiser."""
        if self._optimizer is None:
            return {}
        state = self._optimizer.state[self._parameter]
        return {key: value.clone() if isinstance(value, Tensor) else value for key, value in state.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self._optimizer is not None:
            self._optimizer.state[self._parameter] = {
                key: value.clone() if isinstance(value, Tensor) else value for key, value in state.items()
            }


def _check_beta(name: str, value: float) -> float:
    number = plain_number(value)
    if not is_number(number) or not 0 <= number < 1:
        raise ValueError(f"{name} must be in [0, 1), got {value!r}")
    return number
