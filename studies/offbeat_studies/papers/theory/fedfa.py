"""FedFa on problems with known constants, with FedBuff's step size; both variants.

Its own bound is missing in the text that we have; the paper says that its rate is FedBuff's.
"""

from collections import deque
from typing import Literal

import numpy as np

from offbeat.theory.fedbuff import fedbuff_bound, fedbuff_step_size
from offbeat_studies.papers.theory.measured_bound import Array, MeasureAt, Row, row
from offbeat_studies.papers.theory.problems import Clients, Problem, mean_gradient_square, quadratics

Variant = Literal["param", "delta"]


def fedfa_row(
    problem: Problem,
    rng: np.random.Generator,
    seeds: int,
    variant: Variant,
    *,
    steps: int,
    window: int,
    max_staleness: int,
    server_steps: int,
) -> Row:
    """Measure FedFa beside FedBuff's bound.

    Every update has the maximum staleness, in versions.
    """
    bound = fedbuff_bound(
        server_steps=server_steps,
        steps=steps,
        clients=problem.clients,
        max_staleness=max_staleness,
        smoothness=problem.smoothness,
        initial_error=problem.initial_error,
        variance=problem.variance,
        diversity=problem.diversity,
    )
    lr = fedbuff_step_size(server_steps=server_steps, steps=steps, smoothness=problem.smoothness)
    chosen = rng.integers(problem.clients, size=(server_steps, seeds))
    path = fedfa_models(problem, rng, chosen, variant, steps=steps, lr=lr, window=window, max_staleness=max_staleness)
    setting = f"{problem.name}; uniform arrivals, T = {server_steps}, Q = {steps}, K = {window}, τ = {max_staleness}"
    return row(f"FedFa-{variant.title()}", setting, mean_gradient_square(problem, path), bound.value)


def fedfa_models(
    problem: Problem,
    rng: np.random.Generator,
    chosen: Clients,
    variant: Variant,
    *,
    steps: int,
    lr: float,
    window: int,
    max_staleness: int,
) -> Array:
    """Return w_t before each arrival, ``(T, seeds, d)``, with server_lr = 1.

    ``chosen`` has the client of each arrival, ``(T, seeds)``. The model stays w_0 until K updates have arrived.
    """
    model = np.tile(problem.start, (chosen.shape[1], 1))
    versions = deque([model], maxlen=max_staleness + 1)
    uploads: deque[Array] = deque(maxlen=window)
    path = np.empty((len(chosen), *model.shape))
    for t, clients in enumerate(chosen):
        path[t] = model
        start = local = versions[0]
        for _ in range(steps):
            local = local - lr * problem.gradients(clients, local, rng)
        uploads.append(local if variant == "param" else start - local)
        if len(uploads) == window:
            mean = np.mean(uploads, axis=0)
            model = mean if variant == "param" else model - mean
        versions.append(model)
    return path


def _fedfa(variant: Variant, seeds: int, rng: np.random.Generator, server_steps: int) -> Row:
    problem = quadratics("quadratics, N = 8, d = 3", 8, [0.05, 0.25, 0.5], variance=2.0)
    return fedfa_row(problem, rng, seeds, variant, steps=2, window=4, max_staleness=1, server_steps=server_steps)


SWEEPS: dict[str, MeasureAt] = {
    "fedfa_param": lambda value, seeds, rng: _fedfa("param", seeds, rng, value),
    "fedfa_delta": lambda value, seeds, rng: _fedfa("delta", seeds, rng, value),
}
"""T."""
