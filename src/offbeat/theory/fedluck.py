"""FedLuck: the joint choice of steps and compression, and the convergence bound.

"Theory for FedLuck" (the paper's appendix), section 2. A visit of k local steps whose update is cut to its share δ
takes d = kα + δβ seconds (α a step, β an uncompressed upload); the server aggregates every T̃ seconds.
"""

import math
from typing import TypedDict, Unpack

from offbeat.theory.bound import (
    Assumption,
    Bound,
    at_least,
    at_most,
    check_count,
    check_not_negative,
    check_positive,
    given,
)


def staleness_in_periods(*, visit_seconds: float, period: float) -> int:
    """Return ⌈d/T̃⌉ − 1, the number of versions that an update is old.

    Every period T̃ makes a version; d is ``visit_seconds``. The paper's τ is one more.
    """
    check_positive(visit_seconds=visit_seconds, period=period)
    return math.ceil(visit_seconds / period) - 1


def fedluck_objective(
    *,
    steps: float,
    compression: float,
    step_seconds: float,
    upload_seconds: float,
    period: float,
    compression_exponent: float = 0.5,
) -> float:
    """Return φ(k, δ) = ((kα + δβ)²(2 − δ) + 1)/(k δ^e), α and β in periods.

    The smaller φ is, the faster is the convergence.

    Args:
        steps: k > 0.
        compression: δ, 0 < δ ≤ 1.
        step_seconds: Seconds a local step, ≥ 0.
        upload_seconds: Seconds for an uncompressed upload, ≥ 0.
        period: T̃ > 0, seconds.
        compression_exponent: e > 0: 1 in the appendix, ½ in the authors' code.
    """
    check_positive(steps=steps, period=period, compression_exponent=compression_exponent)
    check_not_negative(step_seconds=step_seconds, upload_seconds=upload_seconds)
    _check_compression(compression)
    visit = (steps * step_seconds + compression * upload_seconds) / period
    return (visit**2 * (2 - compression) + 1) / (steps * compression**compression_exponent)


class FedLuckConstants(TypedDict):
    """The constants of the bound.

    Attributes:
        rounds: T, periods.
        lr: η_l, the clients' step size.
        server_lr: η_g.
        steps: k, local steps of one visit.
        compression: δ, 0 < δ ≤ 1.
        max_staleness: The largest ⌈d_i/T̃⌉ − 1 ≥ 0, in versions; the paper's τ_max is one more.
        smoothness: L of every F_i.
        initial_error: F(w_0) − F*.
        variance: σ² ≥ E‖∇F_i(w, ξ) − ∇F_i(w)‖² (the paper's assumption leaves the square out).
        heterogeneity: ζ², the mean of the ζ_i² ≥ ‖∇F_i(w) − ∇F(w)‖² where all clients come equally often, else the
            largest of them.
        gradient_bound: G, G² ≥ ‖∇F_i(w)‖².
        arrivals_every_period: Whether every period has an arrival, which the derivation takes for granted.
    """

    rounds: float
    lr: float
    server_lr: float
    steps: int
    compression: float
    max_staleness: int
    smoothness: float
    initial_error: float
    variance: float
    heterogeneity: float
    gradient_bound: float
    arrivals_every_period: bool


def fedluck_bound(**constants: Unpack[FedLuckConstants]) -> Bound:
    """Return the bound on (1/T) Σ_{t<T} E‖∇F(w_t)‖², mended.

    2(F(w_0) − F*)/(η_g Q_l T) + η_l²k²((1 − δ)B_1 + B_2)/Q_l + η_l²k⁴(2τ_max²(2 − δ) + 1)B_1/Q_l with
    B_1 = 18(σ² + ζ² + G²), B_2 = 6(σ² + ζ²) and Q_l = 1 − 6(1 − η_l k)².

    Q_l is what the paper's derivation gives: the factor that is left of −(η_g/2)‖∇F(w_t)‖². The paper prints its
    negative, see ``fedluck_bound_as_printed``. There is a bound only while Q_l > 0, for η_l k between
    1 − 1/√6 = 0.592 and 1 + 1/√6 = 1.408: none for the usual small steps. And where there is one it is more than 18 G²,
    by its last term alone (η_l k ≥ 0.592, τ_max ≥ 1, B_1 ≥ 18 G², Q_l ≤ 1), so that it says less than the assumption
    ‖∇F_i‖ ≤ G does.
    """
    moved = constants["lr"] * constants["steps"]
    q = 1 - 6 * (1 - moved) ** 2
    low, high = 1 - 1 / math.sqrt(6), 1 + 1 / math.sqrt(6)
    text = f"η_l k = {moved:.6g} is {'between' if q > 0 else 'not between'} {low:.3f} and {high:.3f}"
    return _bound(constants, q, Assumption(text, q > 0))


def fedluck_bound_as_printed(**constants: Unpack[FedLuckConstants]) -> Bound:
    """Return the bound as the paper prints it; it does not hold.

    It has Q_l = 6(1 − η_l k)² − 1 ≥ 0. A counter-example:

    One client, F(w) = ½w², w_0 = 1, one exact step a visit, η_g = 1, δ = 1 and T = 1: the left side is 1, while the
    right side goes to 2F(w_0)/Q_l = 1/5 for η_l → 0.
    """
    moved = constants["lr"] * constants["steps"]
    q = 6 * (1 - moved) ** 2 - 1
    return _bound(constants, q, at_least("6(1 − η_l k)²", q + 1, "1", 1))


def _bound(constants: FedLuckConstants, q: float, room: Assumption) -> Bound:
    rounds, lr, server_lr = constants["rounds"], constants["lr"], constants["server_lr"]
    steps, compression, smoothness = constants["steps"], constants["compression"], constants["smoothness"]
    variance, heterogeneity, initial_error = (
        constants["variance"],
        constants["heterogeneity"],
        constants["initial_error"],
    )
    gradient_bound, max_staleness = constants["gradient_bound"], constants["max_staleness"]
    check_count(steps=steps)
    check_positive(rounds=rounds, lr=lr, server_lr=server_lr, smoothness=smoothness)
    check_not_negative(
        max_staleness=max_staleness,
        initial_error=initial_error,
        variance=variance,
        heterogeneity=heterogeneity,
        gradient_bound=gradient_bound,
    )
    _check_compression(compression)
    b1 = 18 * (variance + heterogeneity + gradient_bound**2)
    b2 = 6 * (variance + heterogeneity)
    periods = max_staleness + 1
    value = (
        2 * initial_error / (server_lr * rounds)
        + (lr * steps) ** 2 * ((1 - compression) * b1 + b2)
        + lr**2 * steps**4 * (2 * periods**2 * (2 - compression) + 1) * b1
    )
    every_period = constants["arrivals_every_period"]
    return Bound(
        value / q if q > 0 else math.inf,
        (
            room,
            at_most("η_l", lr, "min(1, 1/L)", min(1, 1 / smoothness)),
            at_most("η_g", server_lr, "min(1, 1/L)", min(1, 1 / smoothness)),
            Assumption(f"{'every' if every_period else 'not every'} period has an arrival", every_period, every_period),
            given(f"every F_i is L-smooth, L = {smoothness:g}, with gradients of norm at most G = {gradient_bound:g}"),
            given(f"a client's gradient has variance at most σ² = {variance:g}"),
            given(f"the clients' gradients have heterogeneity at most ζ² = {heterogeneity:g}"),
            given("C is a contraction: ‖v − C(v)‖² ≤ (1 − δ)‖v‖²"),
        ),
    )


def _check_compression(compression: float) -> None:
    if not 0 < compression <= 1:
        raise ValueError(f"compression must be greater than 0 and at most 1, got {compression}")
