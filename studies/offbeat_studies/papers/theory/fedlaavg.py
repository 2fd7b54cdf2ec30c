"""FedLaAvg's Lemma 2, Theorem 3 and Theorem 1, and FedAvg in Example 1."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from offbeat.theory.fedlaavg import fedlaavg_bound, fedlaavg_example_bound, fedlaavg_max_staleness, fedlaavg_step_size
from offbeat_studies.papers.theory.measured_bound import Array, Row, row
from offbeat_studies.papers.theory.problems import Problem, logistic_regression, mean_gradient_square, quadratics


def check_fedlaavg(seeds: int, rng: np.random.Generator) -> list[Row]:
    """Return the rows of FedLaAvg and of Example 1."""
    wide = quadratics("quadratics, N = 10, d = 3", 10, [0.2, 0.5, 1.0], variance=0.5)
    logistic = logistic_regression("logistic regression, N = 6, d = 3", 6)
    return [
        *theorem3_rows(wide, rng, seeds, cohort=3, available_every=4, rounds=2000),
        *theorem3_rows(logistic, rng, seeds, cohort=2, available_every=6, rounds=2000),
        *(
            theorem3_rows(one, rng, seeds, cohort=3, available_every=4, rounds=2000, steps=5)[1]
            for one in (wide, logistic)
        ),
        _tight_row(wide, rng),
        *_example_rows(),
    ]


@dataclass(frozen=True)
class Run:
    """The measurements of a run of FedLaAvg.

    Attributes:
        models: The model at the start of each round, ``(T, seeds, d)``.
        gradient_square: The mean ‖∇f(x)‖² over the rounds' models before the last of the clients' steps, ``(seeds,)``;
            with one step these are ``models``.
        oldest: The largest r − R_i, ``(seeds,)``.
        second_moment: G².
    """

    models: Array
    gradient_square: Array
    oldest: Array
    second_moment: float


def random_availability(
    rng: np.random.Generator, *, rounds: int, seeds: int, clients: int, available_every: int, share: float = 0.2
) -> npt.NDArray[np.bool_]:
    """Return the available clients, ``(rounds, seeds, clients)``.

    They are random, but each client is available at least once in any E successive rounds.
    """
    available = rng.random((rounds, seeds, clients)) < share
    away = np.zeros((seeds, clients), dtype=np.int64)
    for now in available:
        now |= away == available_every - 1
        away = np.where(now, 0, away + 1)
    return available


def run_fedlaavg(
    problem: Problem,
    rng: np.random.Generator,
    available: npt.NDArray[np.bool_],
    *,
    cohort: int,
    lr: float,
    steps: int = 1,
) -> Run:
    """Run FedLaAvg, ``available (rounds, seeds, N)``."""
    rounds, seeds, clients = available.shape
    everyone = np.broadcast_to(np.arange(clients), (seeds, clients))
    model = np.tile(problem.start, (seeds, 1))
    latest = np.zeros((seeds, clients, len(problem.start)))  # sums of gradients
    latest_last = latest  # the last gradients of these sums
    last_round = np.zeros((seeds, clients), dtype=np.int64)
    oldest = np.zeros(seeds)
    second_moment = 0.0
    path, before_last = np.empty((2, rounds, *model.shape))
    for r, now in enumerate(available, start=1):
        path[r - 1] = model
        waiting = np.where(now, last_round, rounds + 1)  # offline clients come last
        rank = waiting.argsort(axis=1, kind="stable").argsort(axis=1)
        chosen = now & (rank < cohort)
        points = np.repeat(model[:, None], clients, axis=1)
        total = gradients = np.zeros_like(points)
        for _ in range(steps):
            second_moment = max(second_moment, problem.second_moment(everyone, points))
            gradients = problem.gradients(everyone, points, rng)
            points, total = points - lr * gradients, total + gradients
        latest = np.where(chosen[..., None], total, latest)
        latest_last = np.where(chosen[..., None], gradients, latest_last)
        last_round = np.where(chosen, r, last_round)
        oldest = np.maximum(oldest, (r - last_round).max(1))
        before_last[r - 1] = model - lr * (latest - latest_last).mean(1)
        model = model - lr * latest.mean(1)
    return Run(path, mean_gradient_square(problem, before_last), oldest, second_moment)


def theorem3_rows(
    problem: Problem,
    rng: np.random.Generator,
    seeds: int,
    *,
    cohort: int,
    available_every: int,
    rounds: int,
    steps: int = 1,
    lr: float | None = None,
) -> list[Row]:
    """Measure Lemma 2 and Theorem 3, by default with Corollary 4's step size.

    With several steps they are those of appendix C.
    """
    lr = lr or fedlaavg_step_size(
        rounds=rounds,
        steps=steps,
        clients=problem.clients,
        cohort=cohort,
        available_every=available_every,
        smoothness=problem.smoothness,
    )
    staleness = fedlaavg_max_staleness(clients=problem.clients, cohort=cohort, available_every=available_every)
    available = random_availability(
        rng, rounds=rounds, seeds=seeds, clients=problem.clients, available_every=available_every
    )
    run = run_fedlaavg(problem, rng, available, cohort=cohort, lr=lr, steps=steps)
    bound = fedlaavg_bound(
        rounds=rounds,
        lr=lr,
        clients=problem.clients,
        max_staleness=staleness,
        smoothness=problem.smoothness,
        initial_error=problem.initial_error,
        variance=problem.variance,
        gradient_bound=math.sqrt(run.second_moment),
        steps=steps,
    )
    setting = f"{problem.name}; random availability, E = {available_every}, K = {cohort}, T = {rounds}, γ = {lr:.3g}"
    setting += "" if steps == 1 else f", C = {steps}"
    theorem = "Theorem 3" if steps == 1 else "appendix C"
    return [
        row("FedLaAvg, Lemma 2", setting, float(run.oldest.max()), staleness),
        row(f"FedLaAvg, {theorem}", setting, run.gradient_square, bound.value, should_hold=bound.holds),
    ]


def _tight_row(problem: Problem, rng: np.random.Generator) -> Row:
    available = np.zeros((60, 1, problem.clients), dtype=np.bool_)
    available[4::5] = True
    run = run_fedlaavg(problem, rng, available, cohort=3, lr=0.01)
    staleness = fedlaavg_max_staleness(clients=problem.clients, cohort=3, available_every=5)
    setting = f"{problem.name}; all available in every 5th round, K = 3"
    return row("FedLaAvg, Lemma 2", setting, run.oldest, staleness)


def _example_rows() -> list[Row]:
    rows: list[Row] = []
    for t1, t2, e1, e2, start, rounds in ((20, 5, 1.0, -1.0, 1.0, 10_000), (3, 3, 1.0, -1.0, 3.0, 100)):
        bound = fedlaavg_example_bound(
            rounds=rounds, start=start, first_rounds=t1, second_rounds=t2, first_centre=e1, second_centre=e2
        )
        setting = f"Example 1: e = {e1:g}, {e2:g}, x_0 = {start:g}, t_1 = {t1}, t_2 = {t2}, T = {rounds}"
        measured = run_example(latest_average=True, rounds=rounds, start=start, turns=(t1, t2), centres=(e1, e2))
        rows.append(row("FedLaAvg, Theorem 1", setting, measured, bound.value))
        if t1 != t2:
            fedavg = run_example(latest_average=False, rounds=rounds, start=start, turns=(t1, t2), centres=(e1, e2))
            rows.append(row("FedAvg, FedLaAvg's Theorem 1", setting, fedavg, bound.value, should_hold=False))
    measured = run_example(latest_average=True, rounds=2, start=-1, turns=(1, 1), centres=(0, 0))
    setting = "Example 1: e = 0, 0, x_0 = −1, t_1 = t_2 = 1, T = 2"
    rows.append(row("FedLaAvg, Theorem 1 as printed", setting, measured, 1 / math.sqrt(2), should_hold=False))
    return rows


def run_example(
    *, latest_average: bool, rounds: int, start: float, turns: tuple[int, int], centres: tuple[float, float]
) -> float:
    """Return (1/T) Σ_{t<T} (x_t − x*)² in Example 1 with γ = 1/(2√T).

    The algorithm is FedLaAvg if ``latest_average`` is true, else FedAvg.
    """
    lr = 1 / (2 * math.sqrt(rounds))
    best = sum(centres) / 2
    point, total, latest = start, 0.0, [0.0, 0.0]
    for t in range(rounds):
        total += (point - best) ** 2
        client = 0 if t % sum(turns) < turns[0] else 1
        latest[client] = 2 * (point - centres[client])
        point -= lr * (sum(latest) / 2 if latest_average else latest[client])
    return total / rounds
