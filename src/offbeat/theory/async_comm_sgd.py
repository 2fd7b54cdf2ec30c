"""AsyncCommSGD's convergence: bounds, step sizes and weights.

The bounds are Proposition 2.1 and Theorems 2.2 and 2.4.

Avdyukhin and Kasiviswanathan, "Federated Learning under Arbitrary Communication Patterns" (ICML 2021). The theorems
give orders of magnitude; the constants here are those of the proofs in appendix B. Δ is the largest gap between two
communications of one client; z_t is the virtual sequence z_{t+1} = z_t − γ_t (1/N) Σ_i G_{i,t}, z_0 = x_0.
"""

import math
from collections.abc import Sequence

from offbeat.theory.bound import (
    Assumption,
    Bound,
    at_most,
    check_count,
    check_not_negative,
    check_positive,
    count_equally,
    given,
)


def async_comm_distance_bound(
    *, lr: float | Sequence[float], round_number: int, max_gap: int, gradient_bound: float
) -> Bound:
    """Return Proposition 2.1's bound on the distance of clients and average.

    72 γ_t² G² Δ² bounds E‖z_t − x_{i,t}‖² for every client i, and E‖z_t − x_t‖².

    The proof bounds ‖x_t − x_{t'}‖², t' the client's last communication, by Δ steps where it can be 2Δ of them. The
    proposition stands nevertheless: z_t' and x_t' are Δ steps apart, client and average then go at most Δ steps each,
    and put together directly this comes to 64 γ_t² G² Δ².

    Args:
        lr: γ, or γ_0, γ_1, … for all rounds of the run.
        round_number: t.
        max_gap: Δ ≥ 1.
        gradient_bound: G, G² ≥ E‖∇F_i(x, θ)‖².

    Raises:
        ValueError: A constant is out of range, or there is no γ_t.
    """
    check_count(max_gap=max_gap)
    check_not_negative(gradient_bound=gradient_bound)
    check_not_negative(round_number=round_number)
    rates = lr if isinstance(lr, Sequence) else [lr]
    for rate in rates:
        check_positive(lr=rate)
    if isinstance(lr, Sequence) and round_number >= len(lr):
        raise ValueError(f"round_number must be less than {len(lr)}, got {round_number}")
    rate = lr[round_number] if isinstance(lr, Sequence) else lr
    return Bound(
        72 * (rate * gradient_bound * max_gap) ** 2,
        (*_step_sizes(rates, max_gap), *_second_moment(max_gap, gradient_bound)),
    )


def async_comm_convex_step_size(
    *, round_number: int, max_gap: int, smoothness: float, strong_convexity: float
) -> float:
    """Return γ_t = 8/(λ(t + Δ + 8L/λ)), the step size of Theorem 2.2 in round t."""
    check_not_negative(round_number=round_number)
    return 8 / (strong_convexity * (round_number + _offset(max_gap, smoothness, strong_convexity)))


def async_comm_convex_weight(*, round_number: int, max_gap: int, smoothness: float, strong_convexity: float) -> float:
    """Return w_t = (t + Δ + 8L/λ)², the weight of z_t in the average (Lemma B.4).

    The bound is proven for this average. The main text has (t + Δ)², which does not fit its own γ_t.
    """
    check_not_negative(round_number=round_number)
    return (round_number + _offset(max_gap, smoothness, strong_convexity)) ** 2


def async_comm_convex_weight_sum(*, rounds: int, max_gap: int, smoothness: float, strong_convexity: float) -> float:
    """Return S_T = Σ_{t<T} w_t, the sum of the weights.

    With a = Δ + 8L/λ this is T a² + a T(T − 1) + (T − 1)T(2T − 1)/6 ≥ T³/3. (The paper sums to T in one place and to
    T − 1 in another, as does the lemma that it rests on.)
    """
    check_count(rounds=rounds)
    a = _offset(max_gap, smoothness, strong_convexity)
    return rounds * a**2 + a * rounds * (rounds - 1) + (rounds - 1) * rounds * (2 * rounds - 1) / 6


def async_comm_convex_bound(
    *,
    rounds: int,
    clients: int,
    max_gap: int,
    smoothness: float,
    strong_convexity: float,
    gradient_bound: float,
    variance: float,
    equal_weights: bool = True,
) -> Bound:
    """Return the bound on E f(ẑ_T) − f* for strongly convex f (proof of Theorem B.3).

    Here ẑ_T = Σ_{t<T} w_t z_t / S_T, and the bound is:

    G²(Δ + 8L/λ)³/(2λS_T) + 4T(T + 2Δ + 16L/λ)σ²/(λS_T N) + 2·10⁴ T L²G²Δ²/(λ³S_T), with the step sizes γ_t and weights
    w_t of this file; f is the average of the f_i (Theorem 2.2 writes their sum). The main text has other constants, for
    half of its γ_t. The proof drops a factor of 2 in (4) and so needs γ_t ≤ 1/(2L), which the first 8L/λ − Δ rounds
    miss. No setting was found in which this breaks the bound; its last constant is very large.

    Args:
        rounds: T.
        clients: N.
        max_gap: Δ.
        smoothness: L of every f_i.
        strong_convexity: λ of f.
        gradient_bound: G, G² ≥ E‖∇F_i(x, θ)‖².
        variance: σ² ≥ E‖∇F_i(x, θ) − ∇f_i(x)‖².
        equal_weights: Whether f is the mean of the f_i. A weighted Σ p_i f̃_i is that of f_i = p_i N f̃_i, if L, σ² and G
            are those of these f_i.
    """
    check_count(clients=clients)
    check_not_negative(gradient_bound=gradient_bound, variance=variance)
    total = async_comm_convex_weight_sum(
        rounds=rounds, max_gap=max_gap, smoothness=smoothness, strong_convexity=strong_convexity
    )
    square = gradient_bound**2
    condition = smoothness / strong_convexity
    value = (
        square * (max_gap + 8 * condition) ** 3 / (2 * strong_convexity * total)
        + 4 * rounds * (rounds + 2 * max_gap + 16 * condition) / (strong_convexity * total) * variance / clients
        + 2e4 * rounds * condition**2 * square * max_gap**2 / (strong_convexity * total)
    )
    return Bound(
        value,
        (
            at_most("λ", strong_convexity, "L", smoothness),
            count_equally(equal_weights),
            given(f"every f_i is L-smooth, L = {smoothness:g}, and f is λ-strongly convex, λ = {strong_convexity:g}"),
            given(f"a client's gradient has variance at most σ² = {variance:g}"),
            given("γ_t = 8/(λ(t + Δ + 8L/λ)), and z_t counts (t + Δ + 8L/λ)² in the average"),
            *_second_moment(max_gap, gradient_bound),
        ),
    )


def async_comm_step_size(*, rounds: float, clients: int, smoothness: float) -> float:
    """Return γ = √N/(L√T), Corollary 2.5's constant step size.

    f need not be convex.
    """
    check_count(clients=clients)
    check_positive(rounds=rounds, smoothness=smoothness)
    return math.sqrt(clients / rounds) / smoothness


def async_comm_bound(
    *,
    rounds: float,
    lr: float,
    clients: int,
    max_gap: int,
    smoothness: float,
    initial_error: float,
    gradient_bound: float,
    variance: float,
    equal_weights: bool = True,
) -> Bound:
    """Return the bound on (1/T) Σ_{t<T} E‖∇f(x_t)‖² at a constant step size.

    From the proof of Theorem B.5:

    8(f(x_0) − f*)/(γT) + 944 γ²L²G²Δ² + 4γLσ²/N, γ ≤ 1/(18L). (The appendix needs only γ ≤ 1/(4L). The paper divides
    T + 1 terms by T, which the constants do not cover.)

    Args:
        rounds: T.
        lr: γ, the same in all rounds.
        clients: N.
        max_gap: Δ.
        smoothness: L of every f_i.
        initial_error: f(x_0) − f*, f_max in the paper.
        gradient_bound: G, G² ≥ E‖∇F_i(x, θ)‖².
        variance: σ² ≥ E‖∇F_i(x, θ) − ∇f_i(x)‖².
        equal_weights: Whether f is the mean of the f_i. A weighted Σ p_i f̃_i is that of f_i = p_i N f̃_i, if L, σ² and G
            are those of these f_i.
    """
    check_count(clients=clients, max_gap=max_gap)
    check_positive(rounds=rounds, lr=lr, smoothness=smoothness)
    check_not_negative(initial_error=initial_error, gradient_bound=gradient_bound, variance=variance)
    value = (
        8 * initial_error / (lr * rounds)
        + 944 * (lr * smoothness * gradient_bound * max_gap) ** 2
        + 4 * lr * smoothness * variance / clients
    )
    return Bound(
        value,
        (
            at_most("γ", lr, "1/(18L)", 1 / (18 * smoothness)),
            count_equally(equal_weights),
            given(f"every f_i is L-smooth, L = {smoothness:g}"),
            given(f"a client's gradient has variance at most σ² = {variance:g}"),
            *_second_moment(max_gap, gradient_bound),
        ),
    )


def _offset(max_gap: int, smoothness: float, strong_convexity: float) -> float:
    check_count(max_gap=max_gap)
    check_positive(smoothness=smoothness, strong_convexity=strong_convexity)
    return max_gap + 8 * smoothness / strong_convexity


def _step_sizes(rates: Sequence[float], max_gap: int) -> tuple[Assumption, Assumption]:
    growing = next((t for t in range(len(rates) - 1) if rates[t + 1] > rates[t]), None)
    falling = next((t for t in range(len(rates) - max_gap) if rates[t] > 2 * rates[t + max_gap]), None)
    return (
        Assumption(
            "γ_t does not increase" if growing is None else f"γ_t increases from round {growing} to {growing + 1}",
            growing is None,
        ),
        Assumption(
            "γ_t ≤ 2γ_{t+Δ}" if falling is None else f"γ_t is more than twice γ_{{t+Δ}} at t = {falling}",
            falling is None,
        ),
    )


def _second_moment(max_gap: int, gradient_bound: float) -> tuple[Assumption, Assumption]:
    return (
        given(f"every client communicates at least once in any Δ = {max_gap} successive rounds"),
        given(f"a client's gradient has a mean square of at most G² = {gradient_bound**2:g}"),
    )
