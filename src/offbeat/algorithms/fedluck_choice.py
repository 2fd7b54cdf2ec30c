"""FedLuck's choice of local steps and compression for a client."""

import torch
from offbeat_core.local_plan import LocalPlan
from offbeat_core.number_checks import check_count, check_not_negative, check_positive
from torch import Tensor

Range = tuple[float, float]

_MOST_STEPS = 100_000
_LARGEST_EXPONENT = 2


def best_steps_and_compression(
    step_seconds: float,
    upload_seconds: float,
    period: float,
    steps: tuple[int, int] = (1, 50),
    compression: Range = (0.01, 1.0),
    compression_exponent: float = 0.5,
) -> tuple[int, float]:
    """Return the whole k and the δ in their ranges that minimise φ.

    ``φ(k, δ) = ((kα + δβ)²(2 − δ) + 1)/(k δ^e)``, α and β in units of T̃. With A = kα and b = β, also in units of T̃,
    ∂φ/∂δ for a fixed k has the sign of −P(δ), ``P(δ) = (3−e) b²δ³ − (4−2e) b(b−A) δ² − (1−e) A(4b−A) δ + e(2A² + 1)``.
    P(0) and the leading coefficient are positive, so P has no positive root or two: φ
    falls up to the smaller one, rises up to the larger one and falls again. The minimum over an interval is at the
    smaller root or at an end. Every k is tried, since the minima of different k are not ordered.

    The exponent e is 1 in "Theory for FedLuck" (the paper's appendix), section 2, and ½ in the authors' code
    (``Aegsteh-T/FedLuck_Euro_Par`` on GitHub).

    Args:
        step_seconds: α, seconds a local step, ≥ 0.
        upload_seconds: β, seconds for an uncompressed upload, ≥ 0.
        period: T̃ > 0, seconds.
        steps: Smallest and largest k.
        compression: Smallest and largest δ, in (0, 1].
        compression_exponent: e, in (0, 2].
    """
    check_positive("period", period)
    check_not_negative("step_seconds", step_seconds)
    check_not_negative("upload_seconds", upload_seconds)
    check_ranges(steps, compression)
    check_positive("compression_exponent", compression_exponent)
    if compression_exponent > _LARGEST_EXPONENT:
        raise ValueError(f"compression_exponent must be at most {_LARGEST_EXPONENT}, got {compression_exponent}")
    b = upload_seconds / period
    ks = torch.arange(steps[0], steps[1] + 1, dtype=torch.float64)
    step_periods = ks * (step_seconds / period)
    smallest, largest = (torch.full_like(ks, share) for share in compression)
    roots = _smaller_root(step_periods, b, compression_exponent).clamp(*compression)
    shares = torch.stack([smallest, roots, largest])
    objective = ((step_periods + shares * b) ** 2 * (2 - shares) + 1) / (ks * shares**compression_exponent)
    which, index = divmod(int(objective.argmin()), len(ks))
    return int(ks[index]), float(shares[which, index])


def check_ranges(steps: tuple[int, int], compression: Range) -> None:
    """Check the ranges of k and δ.

    Raises:
        ValueError: Not 1 ≤ smallest ≤ largest k ≤ 10⁵, both whole, or not 0 < smallest ≤ largest δ ≤ 1.
    """
    for count in steps:
        check_count("steps", count)
    if steps[1] > _MOST_STEPS:
        raise ValueError(f"steps must be at most {_MOST_STEPS:,}, since all are tried, got {list(steps)}")
    if steps[0] > steps[1]:
        raise ValueError(f"steps must run from the smallest to the largest, got {list(steps)}")
    if not 0 < compression[0] <= compression[1] <= 1:
        raise ValueError(f"compression must be two shares in (0, 1], the smaller first, got {list(compression)}")


def check_steps(local: LocalPlan) -> None:
    """Raise ``ValueError`` if the steps depend on a client's examples."""
    if local.steps_by is not None:
        raise ValueError("FedLuck chooses the number of steps: set local.steps to a number, for unmeasured clients")


def check_plan(local: LocalPlan) -> None:
    """Check that a plan leaves the numbers of steps and of entries to FedLuck.

    Raises:
        ValueError: It has a step size for each step, or another compression than ``top_k``.
    """
    if isinstance(local.lr, tuple):
        raise ValueError("FedLuck chooses the number of steps: give local.lr as one number")
    if local.compression is not None and local.compression.name != "top_k":
        raise ValueError(f"FedLuck chooses how much top_k keeps: leave local.compression {local.compression.name} out")


def _smaller_root(step_periods: Tensor, b: float, e: float) -> Tensor:
    """Return P's smaller positive root for each A; where P has none, any number.

    1/δ is the largest root of the reciprocal polynomial ``u³ − c₁u² − c₂u + c₃``, which Viète's formula gives without
    a difference of equals. Roots are divided by a bound on their size first, so that no power overflows.
    """
    e = max(e, 1e-100)  # smaller ones choose the same, and 1/e would overflow
    squares = 2 * step_periods**2 + 1
    c1 = (1 - e) / e * (step_periods * (4 * b - step_periods) / squares)
    c2 = (4 - 2 * e) / e * (b * (b - step_periods) / squares)
    c3 = (3 - e) / e * (b * b / squares)
    bound = torch.stack([c1.abs(), c2.abs().sqrt(), c3 ** (1 / 3), torch.ones_like(c1)]).amax(dim=0)
    c1, c2, c3 = c1 / bound, c2 / bound / bound, c3 / bound / bound / bound
    # With u = t + c₁/3: t³ − 3r²t + 2q = 0, whose largest root is 2r cos(θ/3), cos θ = −q/r³, if all three are real.
    radius = (c2 / 3 + c1**2 / 9).clamp(min=0).sqrt()
    q = c3 / 2 - c1 * c2 / 6 - (c1 / 3) ** 3
    angle = torch.arccos((-q / radius**3).nan_to_num(0.0).clamp(-1, 1))
    return 1 / (bound * (c1 / 3 + 2 * radius * torch.cos(angle / 3))).clamp(min=1)
