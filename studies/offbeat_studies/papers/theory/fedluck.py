"""FedLuck's bound, corrected and as printed."""

import math
from dataclasses import dataclass

import numpy as np

from offbeat.theory.fedluck import FedLuckConstants, fedluck_bound, fedluck_bound_as_printed
from offbeat_studies.papers.theory.measured_bound import Array, Row, row
from offbeat_studies.papers.theory.problems import Quadratics, mean_gradient_square, quadratics


def check_fedluck(seeds: int, rng: np.random.Generator) -> list[Row]:
    """Return the rows of both bounds, each measured where it claims to apply."""
    noisy = quadratics("quadratics, N = 6, d = 4", 6, [0.1, 0.4, 0.7, 1.0], variance=0.2)
    alike = quadratics("equal quadratics, N = 6, d = 4", 6, [0.1, 0.4, 0.7, 1.0], spread=0)
    periods = (1, 1, 2, 2, 3, 3)
    single = Quadratics("½w², N = 1", np.ones(1), np.zeros((1, 1)), np.ones(1))
    return [
        *(
            _row(noisy, rng, seeds, periods, lr=lr, steps=steps, compression=compression, rounds=1000)
            for lr, steps, compression in ((0.65, 1, 1.0), (1.0, 1, 0.5), (0.4, 3, 0.25), (0.25, 4, 1.0))
        ),
        _row(alike, rng, seeds, periods, lr=0.95, steps=1, compression=0.5, rounds=1000),
        _row(single, rng, seeds, (1,), lr=0.01, steps=1, compression=1.0, rounds=1, printed=True),
        _row(alike, rng, seeds, periods, lr=0.0001, steps=10, compression=0.5, rounds=100, printed=True),
        _row(noisy, rng, seeds, periods, lr=0.0001, steps=10, compression=1.0, rounds=100, printed=True),
    ]


@dataclass(frozen=True)
class Run:
    """The measurements of a run of FedLuck.

    Attributes:
        models: w_t, ``(T, seeds, d)``.
        gradient_square: (1/T) Σ_{t<T} ‖∇F(w_t)‖², ``(seeds,)``.
        gradient_bound: G, the largest ‖∇F_i‖ of the run.
    """

    models: Array
    gradient_square: Array
    gradient_bound: float


def run_fedluck(
    problem: Quadratics,
    rng: np.random.Generator,
    seeds: int,
    periods: tuple[int, ...],
    *,
    lr: float,
    steps: int,
    compression: float,
    rounds: int,
    server_lr: float = 1.0,
) -> Run:
    """Run FedLuck with top-k, ``periods`` being ⌈d_i/T̃⌉ of each client."""
    everyone = np.broadcast_to(np.arange(problem.clients), (seeds, problem.clients))
    model = np.tile(problem.start, (seeds, 1))
    starts = np.repeat(model[:, None], problem.clients, axis=1)
    path = np.empty((rounds, *model.shape))
    largest = 0.0
    for t in range(rounds):
        path[t] = model
        largest = max(largest, problem.second_moment(everyone, model[:, None]) - problem.variance)
        arrived = np.array([(t + 1) % visit == 0 for visit in periods])
        clients, begun = everyone[:, arrived], starts[:, arrived]
        local = begun
        for _ in range(steps):
            largest = max(largest, problem.second_moment(clients, local) - problem.variance)
            local = local - lr * problem.gradients(clients, local, rng)
        model = model - server_lr * top_k(begun - local, compression).mean(1)
        starts[:, arrived] = model[:, None]
    return Run(path, mean_gradient_square(problem, path), math.sqrt(largest))


def top_k(vectors: Array, share: float) -> Array:
    """Return each vector of ``(..., d)`` with all but its ⌈δd⌉ largest entries at 0."""
    dropped = vectors.shape[-1] - max(1, math.ceil(share * vectors.shape[-1]))
    kept = vectors.copy()
    np.put_along_axis(kept, np.abs(vectors).argsort(axis=-1)[..., :dropped], 0.0, axis=-1)
    return kept


def _row(
    problem: Quadratics,
    rng: np.random.Generator,
    seeds: int,
    periods: tuple[int, ...],
    *,
    lr: float,
    steps: int,
    compression: float,
    rounds: int,
    printed: bool = False,
) -> Row:
    run = run_fedluck(problem, rng, seeds, periods, lr=lr, steps=steps, compression=compression, rounds=rounds)
    constants: FedLuckConstants = {
        "rounds": rounds,
        "lr": lr,
        "server_lr": 1.0,
        "steps": steps,
        "compression": compression,
        "max_staleness": max(periods) - 1,
        "smoothness": problem.smoothness,
        "initial_error": problem.initial_error,
        "variance": problem.variance,
        "heterogeneity": problem.largest_heterogeneity,
        "gradient_bound": run.gradient_bound,
        "arrivals_every_period": 1 in periods,
    }
    bound = fedluck_bound_as_printed(**constants) if printed else fedluck_bound(**constants)
    claim = f"FedLuck, {'Q_l as printed' if printed else 'mended'}"
    setting = f"{problem.name}; η_l = {lr:g}, k = {steps}, δ = {compression:g}, ⌈d/T̃⌉ ≤ {max(periods)}, T = {rounds}"
    return row(claim, setting, run.gradient_square, bound.value, should_hold=bound.holds and not printed)
