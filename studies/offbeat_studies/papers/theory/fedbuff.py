"""FedBuff's Theorem 1 under uniform arrivals, which it assumes, and unequal ones."""

from collections import deque

import numpy as np

from offbeat.theory.fedbuff import fedbuff_bound, fedbuff_smallest_server_steps, fedbuff_step_size
from offbeat_studies.papers.theory.measured_bound import Array, Row, row
from offbeat_studies.papers.theory.problems import (
    Clients,
    Problem,
    Quadratics,
    logistic_regression,
    mean_gradient_square,
    quadratics,
)

PAIR = Quadratics("two quadratics, centres ±1", np.ones(1), np.array([[1.0], [-1.0]]), np.zeros(1))


def check_fedbuff(seeds: int, rng: np.random.Generator) -> list[Row]:
    """Return the rows of FedBuff's Theorem 1."""
    wide = quadratics("quadratics, N = 8, d = 3", 8, [0.05, 0.25, 0.5], variance=0.5)
    local = quadratics("quadratics, N = 5, d = 2", 5, [0.1, 0.2], variance=0.1)
    logistic = logistic_regression("logistic regression, N = 4, d = 3", 4)
    return [
        fedbuff_row(wide, rng, seeds, steps=1, buffer_size=2, max_staleness=1),
        fedbuff_row(local, rng, seeds, steps=4, buffer_size=3, max_staleness=2),
        fedbuff_row(logistic, rng, seeds, steps=2, buffer_size=2, max_staleness=1),
        fedbuff_row(PAIR, rng, seeds, steps=1, buffer_size=1, max_staleness=0, server_steps=10_000),
        unequal_arrivals_row(rng, seeds, server_steps=10_000),
    ]


def unequal_arrivals_row(rng: np.random.Generator, seeds: int, server_steps: int) -> Row:
    """Measure Theorem 1 where one of two clients makes nine of ten arrivals."""
    return fedbuff_row(
        PAIR, rng, seeds, steps=1, buffer_size=1, max_staleness=0, server_steps=server_steps, arrivals=(0.9, 0.1)
    )


def fedbuff_row(
    problem: Problem,
    rng: np.random.Generator,
    seeds: int,
    *,
    steps: int,
    buffer_size: int,
    max_staleness: int,
    server_steps: int | None = None,
    arrivals: tuple[float, ...] | None = None,
    server_lr: float = 1.0,
    uniform_diversity: bool = False,
) -> Row:
    """Measure Theorem 1 of FedBuff with every update at the maximum staleness.

    ``uniform_diversity``: γ² bounds every client's ‖∇f_i − ∇f‖², and the bound has γ² in place of Nγ² (Remark 2).
    """
    smallest = fedbuff_smallest_server_steps(steps=steps, smoothness=problem.smoothness, max_staleness=max_staleness)
    rounds = server_steps or int(np.ceil(smallest))
    bound = fedbuff_bound(
        server_steps=rounds,
        steps=steps,
        clients=1 if uniform_diversity else problem.clients,
        max_staleness=max_staleness,
        smoothness=problem.smoothness,
        initial_error=problem.initial_error,
        variance=problem.variance,
        diversity=problem.diversity,
        uniform_arrivals=arrivals is None,
        server_lr=server_lr,
    )
    lr = fedbuff_step_size(server_steps=rounds, steps=steps, smoothness=problem.smoothness)
    shares = None if arrivals is None else np.array(arrivals)
    chosen = rng.choice(problem.clients, size=(rounds, seeds, buffer_size), p=shares)
    path = fedbuff_models(problem, rng, chosen, steps=steps, lr=lr, max_staleness=max_staleness, server_lr=server_lr)
    how = "uniform" if arrivals is None else " / ".join(map(str, arrivals))
    setting = f"{problem.name}; {how} arrivals, T = {rounds}, Q = {steps}, K = {buffer_size}, τ = {max_staleness}"
    measured = mean_gradient_square(problem, path)
    return row("FedBuff, Theorem 1", setting, measured, bound.value, should_hold=bound.holds)


def fedbuff_models(
    problem: Problem,
    rng: np.random.Generator,
    chosen: Clients,
    *,
    steps: int,
    lr: float,
    max_staleness: int,
    server_lr: float = 1.0,
) -> Array:
    """Return w_t for t < T, ``(T, seeds, d)``, with s(τ) = 1.

    ``chosen`` has the client of each arrival, ``(T, seeds, K)``.
    """
    rounds, seeds, buffer_size = chosen.shape
    model = np.tile(problem.start, (seeds, 1))
    versions = deque([model], maxlen=max_staleness + 1)
    path = np.empty((rounds, *model.shape))
    for t, clients in enumerate(chosen):
        path[t] = model
        start = np.repeat(versions[0][:, None], buffer_size, axis=1)
        local = start
        for _ in range(steps):
            local = local - lr * problem.gradients(clients, local, rng)
        model = model - server_lr * (start - local).mean(1)
        versions.append(model)
    return path
