"""AsyncCommSGD's Proposition 2.1 and Theorems 2.2 and 2.4 under four patterns."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from offbeat.theory.async_comm_sgd import (
    async_comm_bound,
    async_comm_convex_bound,
    async_comm_convex_step_size,
    async_comm_convex_weight,
    async_comm_distance_bound,
)
from offbeat_studies.papers.theory.measured_bound import Array, Row, row
from offbeat_studies.papers.theory.problems import (
    ConvexProblem,
    Problem,
    logistic_regression,
    mean_gradient_square,
    quadratics,
)

Pattern = npt.NDArray[np.bool_]
"""The clients that communicate after local step t, ``(rounds, clients)``: the paper's C_{t+1}."""


def check_async_comm_sgd(seeds: int, rng: np.random.Generator) -> list[Row]:
    """Return the distance, the convex and the non-convex bound for each pattern."""
    convex = quadratics("quadratics, N = 6, d = 2", 6, [0.8, 1.0], variance=0.5)
    logistic = logistic_regression("logistic regression, N = 6, d = 3", 6)
    return [
        line
        for name, pattern in patterns(rng, rounds=1000, clients=6).items()
        for line in (
            *convex_rows(convex, rng, seeds, name, pattern),
            # at 1/(18L) the term in Δ² alone exceeds G²
            smooth_row(convex, rng, seeds, name, pattern, lr=1 / (200 * convex.smoothness)),
            smooth_row(logistic, rng, seeds, name, pattern, lr=1 / (200 * logistic.smoothness)),
        )
    ]


def patterns(rng: np.random.Generator, *, rounds: int, clients: int) -> dict[str, Pattern]:
    """Return the paper's four patterns, ``(rounds, clients)`` each."""
    after = np.arange(1, rounds + 1)[:, None]  # the round that begins when the step is done
    client = np.arange(clients)
    every, at_once = 2, 2
    turn = (after // every - 1) * at_once % clients
    return {
        "full(4)": full(4, rounds=rounds, clients=clients),
        "round_robin(2, 2)": (after % every == 0) & ((client - turn) % clients < at_once),
        "random(1/4)": rng.random((rounds, clients)) < 0.25,
        "imbalanced": after % (client + 1) == 0,
    }


def full(every: int, *, rounds: int, clients: int) -> Pattern:
    """Return the pattern in which all clients communicate every ``every`` rounds."""
    return np.broadcast_to(np.arange(1, rounds + 1)[:, None] % every == 0, (rounds, clients))


def largest_gap(pattern: Pattern) -> int:
    """Return Δ, the largest gap between two communications; rounds 0 and T count, too."""
    gaps = [np.diff(np.flatnonzero(column), prepend=-1, append=len(pattern) - 1).max() for column in pattern.T]
    return int(max(gaps))


@dataclass(frozen=True)
class Run:
    """The measurements of a run of AsyncCommSGD.

    Attributes:
        models: x_t, ``(T, seeds, d)``.
        virtual: z_t, ``(T, seeds, d)``.
        apart: ‖z_t − x_{i,t}‖² for every client and ‖z_t − x_t‖², ``(T, N + 1, seeds)``.
        second_moment: G².
    """

    models: Array
    virtual: Array
    apart: Array
    second_moment: float


def run_async_comm_sgd(
    problem: Problem, rng: np.random.Generator, seeds: int, pattern: Pattern, step_size: Callable[[int], float]
) -> Run:
    """Run AsyncCommSGD under a pattern, the same for all seeds."""
    rounds, clients = pattern.shape
    everyone = np.broadcast_to(np.arange(clients), (seeds, clients))
    server = np.tile(problem.start, (seeds, 1))
    virtual = server
    local = np.repeat(server[:, None], clients, axis=1)
    received = local
    models, virtuals = np.empty((2, rounds, *server.shape))
    apart = np.empty((rounds, clients + 1, seeds))
    second_moment = 0.0
    for t in range(rounds):
        models[t], virtuals[t] = server, virtual
        everything = np.concatenate([local, server[:, None]], axis=1)
        apart[t] = ((everything - virtual[:, None]) ** 2).sum(-1).T
        second_moment = max(second_moment, problem.second_moment(everyone, local))
        step = step_size(t) * problem.gradients(everyone, local, rng)
        virtual = virtual - step.mean(1)
        local = local - step
        now = pattern[t, :, None]
        server = server - np.where(now, received - local, 0).sum(1) / clients
        local = np.where(now, server[:, None], local)
        received = np.where(now, server[:, None], received)
    return Run(models, virtuals, apart, second_moment)


def convex_rows(
    problem: ConvexProblem, rng: np.random.Generator, seeds: int, name: str, pattern: Pattern
) -> tuple[Row, Row]:
    """Measure Proposition 2.1 and Theorem 2.2 with the theorem's step sizes."""
    rounds, gap = len(pattern), largest_gap(pattern)
    smoothness, convexity = problem.smoothness, problem.strong_convexity
    step_size, weight = (
        partial(rule, max_gap=gap, smoothness=smoothness, strong_convexity=convexity)
        for rule in (async_comm_convex_step_size, async_comm_convex_weight)
    )
    rates = [step_size(round_number=t) for t in range(rounds)]
    run = run_async_comm_sgd(problem, rng, seeds, pattern, rates.__getitem__)
    gradient_bound = math.sqrt(run.second_moment)
    setting = f"{problem.name}; {name}, Δ = {gap}, T = {rounds}, decreasing γ_t"

    distance = async_comm_distance_bound(lr=rates, round_number=0, max_gap=gap, gradient_bound=gradient_bound)
    allowed = distance.value * (np.array(rates) / rates[0]) ** 2
    t, who = np.unravel_index(np.argmax(run.apart.mean(-1) / allowed[:, None]), run.apart.shape[:2])
    average = np.average(run.virtual, axis=0, weights=[weight(round_number=t) for t in range(rounds)])
    bound = async_comm_convex_bound(
        rounds=rounds,
        clients=problem.clients,
        max_gap=gap,
        smoothness=smoothness,
        strong_convexity=convexity,
        gradient_bound=gradient_bound,
        variance=problem.variance,
    )
    return (
        row("AsyncCommSGD, Proposition 2.1", f"{setting}, worst t = {t}", run.apart[t, who], float(allowed[t])),
        row("AsyncCommSGD, Theorem 2.2", setting, problem.errors(average), bound.value, should_hold=bound.holds),
    )


def smooth_row(
    problem: Problem, rng: np.random.Generator, seeds: int, name: str, pattern: Pattern, *, lr: float
) -> Row:
    """Measure Theorem 2.4, which holds for losses that are not convex, too."""
    rounds, gap = len(pattern), largest_gap(pattern)
    run = run_async_comm_sgd(problem, rng, seeds, pattern, lambda _: lr)
    bound = async_comm_bound(
        rounds=rounds,
        lr=lr,
        clients=problem.clients,
        max_gap=gap,
        smoothness=problem.smoothness,
        initial_error=problem.initial_error,
        gradient_bound=math.sqrt(run.second_moment),
        variance=problem.variance,
    )
    measured = mean_gradient_square(problem, run.models)
    setting = f"{problem.name}; {name}, Δ = {gap}, T = {rounds}, γ = {lr:.3g}"
    return row("AsyncCommSGD, Theorem 2.4", setting, measured, bound.value, should_hold=bound.holds)
