"""FedLaAvg's convergence: Lemma 2, Theorem 3 with its step size, and Example 1.

In Example 1 FedAvg goes wrong.

Yan et al., "Distributed Non-Convex Optimization with Sublinear Speedup under Intermittent Client Availability" (2020).
"""

import math

from offbeat.theory.bound import (
    Bound,
    below,
    check_count,
    check_not_negative,
    check_positive,
    count_equally,
    equal,
    given,
)


def fedlaavg_max_staleness(*, clients: int, cohort: int, available_every: int) -> int:
    """Return I = ⌈N/K⌉E − 1 ≥ r − R_i, Lemma 2's bound on a client's staleness.

    I is how many rounds old a client's latest update can be. The bound is tight.

    Args:
        clients: N.
        cohort: K ≤ N, clients chosen a round (fewer if fewer are available).
        available_every: E: each client is available at least once in any E successive rounds. A client that is offline
            for exactly e rounds at a stretch has E = e + 1.
    """
    check_count(clients=clients, cohort=cohort, available_every=available_every)
    if cohort > clients:
        raise ValueError(f"cohort must be at most the number of clients, {clients}, got {cohort}")
    return math.ceil(clients / cohort) * available_every - 1


def fedlaavg_step_size(
    *, rounds: float, steps: int, clients: int, cohort: int, available_every: int, smoothness: float
) -> float:
    """Return the recommended γ = β^½ N^¼ / (2 L C E^½ R^½), β = K/N.

    The paper requires γ ≤ 1/(4L). Corollary 4 (C = 1) and section 5.
    """
    check_count(steps=steps, clients=clients, cohort=cohort, available_every=available_every)
    check_positive(rounds=rounds, smoothness=smoothness)
    share = cohort / clients
    return math.sqrt(share) * clients**0.25 / (2 * smoothness * steps * math.sqrt(available_every * rounds))


def fedlaavg_bound(
    *,
    rounds: float,
    lr: float,
    clients: int,
    max_staleness: float,
    smoothness: float,
    initial_error: float,
    variance: float,
    gradient_bound: float,
    steps: int = 1,
    server_lr: float = 1.0,
    equal_weights: bool = True,
) -> Bound:
    """Return the bound on the mean E‖∇f(x)‖², with one or more local steps.

    With one, Theorem 3: (1/T) Σ_{t<T} E‖∇f(x_t)‖² is at most 2γIL(G² + σ²)/√N + 2γ²I²L²G²/(1 − 2γL) + 4γ²I²L²G² +
    4γσ²L/N + 4(f(x_0) − f*)/(γT).

    With C, (52) of appendix C: (1/T) Σ_{r≤T} E‖∇f(x_{rC−1})‖² is at most 2γICL(G² + σ²)/√N + (2I²/(1 − 2γL) + 4I² +
    4I + 2)γ²C²L²G² + 4γσ²L/N + 4(f(x_0) − f*)/(γTC). x_{rC−1} is round r's model before the last of the clients' steps.

    Theorem 3 is printed for γ ≤ 1/(2L), but at γ = 1/(2L) there is no bound. The proof passes over the rounds before a
    client's first, when its latest update is 0; no setting was found in which this breaks the bound.

    Args:
        rounds: T, in appendix C R.
        lr: γ.
        clients: N.
        max_staleness: I ≥ r − R_i, from ``fedlaavg_max_staleness`` or as seen in a run.
        smoothness: L of every f_i.
        initial_error: f(x_0) − f*.
        variance: σ² ≥ E‖∇F(x; ξ_i) − ∇f_i(x)‖².
        gradient_bound: G, G² ≥ E‖∇F(x; ξ_i)‖².
        steps: C, local steps of one visit.
        server_lr: Step size on the average of the latest updates.
        equal_weights: Whether f is the mean of the f_i. A weighted Σ p_i f̃_i is that of f_i = p_i N f̃_i, if L, σ² and G
            are those of these f_i.
    """
    check_count(clients=clients, steps=steps)
    check_positive(rounds=rounds, lr=lr, smoothness=smoothness)
    check_not_negative(
        max_staleness=max_staleness, initial_error=initial_error, variance=variance, gradient_bound=gradient_bound
    )
    visit = lr * steps * smoothness  # γCL
    gap = 4 * max_staleness**2 + (4 * max_staleness + 2 if steps > 1 else 0)
    value = (
        2 * visit * max_staleness * (gradient_bound**2 + variance) / math.sqrt(clients)
        + (2 * max_staleness**2 / (1 - 2 * lr * smoothness) + gap) * (visit * gradient_bound) ** 2
        + 4 * lr * variance * smoothness / clients
        + 4 * initial_error / (lr * rounds * steps)
        if 2 * lr * smoothness < 1
        else math.inf
    )
    return Bound(
        value,
        (
            below("γ", lr, "1/(2L)", 1 / (2 * smoothness)),
            equal("server_lr", server_lr, "1", 1),
            count_equally(equal_weights),
            given(f"no client's latest update is more than I = {max_staleness:g} rounds old"),
            given(f"every f_i is L-smooth, L = {smoothness:g}"),
            given(f"a client's gradient has variance at most σ² = {variance:g}"),
            given(f"a client's gradient has a mean square of at most G² = {gradient_bound**2:g}"),
        ),
    )


def fedavg_example_limit(
    *, lr: float, first_rounds: int, second_rounds: int, first_centre: float, second_centre: float
) -> float:
    """Return FedAvg's limit in Example 1: the wrong point X (Theorem 2).

    Two clients with f_i(x) = (x − e_i)², f their mean, minimal at (e_1 + e_2)/2. In each period client 1 alone is
    available for t_1 rounds, then client 2 alone for t_2. With exact gradients and one step a round FedAvg's model at
    the end of a period tends to

    X = ((1−2γ)^t_2 (e_1 − e_2) + e_2 − e_1 (1−2γ)^(t_1+t_2)) / (1 − (1−2γ)^(t_1+t_2)),

    and for γ → 0 to (t_1 e_1 + t_2 e_2)/(t_1 + t_2), which is what ``lr = 0`` gives; γ < ½.
    """
    check_count(first_rounds=first_rounds, second_rounds=second_rounds)
    if not 0 <= lr < 0.5:
        raise ValueError(f"lr must be at least 0 and less than 1/2, got {lr}")
    if lr == 0:
        share = first_rounds / (first_rounds + second_rounds)
    else:
        # 1 − (1−2γ)^n without cancellation, so that a small γ goes over into the limit.
        log = math.log1p(-2 * lr)
        first, second, both = (
            -math.expm1(n * log) for n in (first_rounds, second_rounds, first_rounds + second_rounds)
        )
        share = (1 - second) * first / both
    return share * first_centre + (1 - share) * second_centre


def fedlaavg_example_bound(
    *,
    rounds: int,
    start: float,
    first_rounds: int,
    second_rounds: int,
    first_centre: float,
    second_centre: float,
    lr: float | None = None,
) -> Bound:
    """Return Theorem 1's bound on (1/T) Σ_{t<T} (x_t − x*)² for FedLaAvg in Example 1.

    (f(x_0) − f(x*))/√T + I²G²/(4T) with γ = 1/(2√T), I = max(t_1, t_2) and G = max(2|x_0 − x*|, |e_1 − e_2|).

    The paper prints 2(x_0 − x*) without the absolute value, and so the bound fails: e_1 = e_2 = 0, x_0 = −1,
    t_1 = t_2 = 1, T = 2 has 0.70895 on the left and 1/√2 = 0.70711 on the right.

    ``lr`` is γ, None for the theorem's.
    """
    check_count(rounds=rounds, first_rounds=first_rounds, second_rounds=second_rounds)
    best = (first_centre + second_centre) / 2
    staleness = max(first_rounds, second_rounds)
    gradient_bound = max(2 * abs(start - best), abs(first_centre - second_centre))
    step_size = 1 / (2 * math.sqrt(rounds))
    return Bound(
        (start - best) ** 2 / math.sqrt(rounds) + (staleness * gradient_bound) ** 2 / (4 * rounds),
        (
            equal("γ", step_size if lr is None else lr, "1/(2√T)", step_size),
            given("gradients are exact, one step a round, the clients available in turn"),
        ),
    )
