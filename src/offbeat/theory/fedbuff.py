"""FedBuff's convergence: Theorem 1, its step size and how long it must run.

Toghani and Uribe, "Unbounded Gradients in Federated Learning with Buffered Asynchronous Aggregation" (2022).
"""

import math

from offbeat.theory.bound import (
    Assumption,
    Bound,
    at_least,
    check_count,
    check_not_negative,
    check_positive,
    equal,
    given,
)


def fedbuff_step_size(*, server_steps: float, steps: int, smoothness: float) -> float:
    """Return the client step size of Theorem 1, η = 1/(Q√(LT))."""
    check_count(steps=steps)
    check_positive(server_steps=server_steps, smoothness=smoothness)
    return 1 / (steps * math.sqrt(smoothness * server_steps))


def fedbuff_smallest_server_steps(*, steps: int, smoothness: float, max_staleness: float) -> float:
    """Return the smallest T of Theorem 1, 160 L (Q + 7)(τ + 1)³."""
    check_count(steps=steps)
    check_positive(smoothness=smoothness)
    check_not_negative(max_staleness=max_staleness)
    return 160 * smoothness * (steps + 7) * (max_staleness + 1) ** 3


def fedbuff_bound(
    *,
    server_steps: float,
    steps: int,
    clients: int,
    max_staleness: float,
    smoothness: float,
    initial_error: float,
    variance: float,
    diversity: float,
    batch_size: int = 1,
    lr: float | None = None,
    server_lr: float = 1.0,
    constant_weights: bool = True,
    uniform_arrivals: bool = True,
) -> Bound:
    """Return Theorem 1's bound on (1/T) Σ_{t<T} E‖∇f(w_t)‖².

    8√L (f(w_0) − f*)/√T + 16√L (σ²/b + γ²)/√T + 320 L (Q + 1)(τ² + 1)(σ²/b + Nγ²)/T.

    It rests on arrivals that are uniform on all clients whatever their speed, which hardly ever holds where clients
    return when they are done. Two clients with f_i = ½(w ∓ 1)², w_0 = 0, Q = K = 1, τ = 0 and arrivals 0.9 / 0.1:
    FedBuff goes to 0.8 instead of 0, and the left side to 0.64, above the bound of 0.29 at T = 10⁴, 0.063 at 10⁵.

    Args:
        server_steps: T.
        steps: Q, local steps of a visit, the same for all clients.
        clients: N.
        max_staleness: τ ≥ 0 of the stalest update that is used.
        smoothness: L of every f_i.
        initial_error: f(w_0) − f*.
        variance: σ² ≥ E‖∇ℓ_i(w, ξ) − ∇f_i(w)‖², of a single example.
        diversity: γ² ≥ (1/N) Σ_i ‖∇f_i(w) − ∇f(w)‖².
        batch_size: b, examples a local step.
        lr: The clients' step size; None for the theorem's η.
        server_lr: Step size on the mean delta, Kβ in the paper.
        constant_weights: Whether s(τ) = 1.
        uniform_arrivals: Whether each arrival's client is drawn uniformly from all N.
    """
    check_count(clients=clients, batch_size=batch_size)
    check_not_negative(initial_error=initial_error, variance=variance, diversity=diversity)
    smallest = fedbuff_smallest_server_steps(steps=steps, smoothness=smoothness, max_staleness=max_staleness)
    step_size = fedbuff_step_size(server_steps=server_steps, steps=steps, smoothness=smoothness)
    noise = variance / batch_size
    root = math.sqrt(smoothness / server_steps)
    value = (
        8 * root * initial_error
        + 16 * root * (noise + diversity)
        + 320 * smoothness * (steps + 1) * (max_staleness**2 + 1) * (noise + clients * diversity) / server_steps
    )
    arrivals = "are uniform on all clients" if uniform_arrivals else "are not uniform: some clients come more often"
    weights = "a stale update counts in full" if constant_weights else "a stale update does not count in full"
    return Bound(
        value,
        (
            Assumption(f"arrivals {arrivals}", uniform_arrivals),
            at_least("T", server_steps, "160 L (Q + 7)(τ + 1)³", smallest),
            equal("the client step size", step_size if lr is None else lr, "1/(Q√(LT))", step_size),
            equal("server_lr", server_lr, "1", 1),
            Assumption(weights, constant_weights),
            given(f"every update is at most τ = {max_staleness:g} versions stale and of Q = {steps} steps"),
            given(f"every f_i is L-smooth, L = {smoothness:g}"),
            given(f"a single example's gradient has variance at most σ² = {variance:g}"),
            given(f"the clients' gradients have diversity at most γ² = {diversity:g}"),
        ),
    )
