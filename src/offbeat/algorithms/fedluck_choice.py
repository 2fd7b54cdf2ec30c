"""FedLuck's choice: how many local steps, and how much compression, suit a client."""

import math

import torch
from torch import Tensor

from offbeat.algorithms.components.checks import check_count, check_not_negative, check_positive

Range = tuple[float, float]

_MOST_STEPS = 100_000


def best_steps_and_compression(
    step_seconds: float,
    upload_seconds: float,
    period: float,
    steps: tuple[int, int] = (1, 50),
    compression: Range = (0.01, 1.0),
) -> tuple[int, float]:
    """Return the (k, δ) that minimises φ(k, δ) = ((kα + δβ)²(2 − δ) + 1)/(kδ), over whole k and all δ in their ranges.

    For a fixed k, ∂φ/∂δ has the sign of −(2b²δ³ − 2b(b − ka)δ² + 2k²a² + 1), a = α/T̃ and b = β/T̃. So φ falls up to
    the cubic's smaller positive root, rises up to its larger one and falls again: the minimum over an interval is at
    the smaller root or at an end. Every k is tried, since the minima of different k are not ordered.

    "Theory for FedLuck" (the paper's appendix), section 2.

    Args:
        step_seconds: α, seconds a local step, ≥ 0.
        upload_seconds: β, seconds for an uncompressed upload, ≥ 0.
        period: T̃ > 0, seconds.
        steps: Smallest and largest k.
        compression: Smallest and largest δ, in (0, 1].

    Raises:
        ValueError: A value is out of range, or a range is empty.
    """
    check_positive("period", period)
    check_not_negative("step_seconds", step_seconds)
    check_not_negative("upload_seconds", upload_seconds)
    check_ranges(steps, compression)
    a, b = step_seconds / period, upload_seconds / period
    ks = torch.arange(steps[0], steps[1] + 1, dtype=torch.float64)
    shares = torch.stack(
        [torch.full_like(ks, compression[0]), _smaller_root(ks, a, b), torch.full_like(ks, compression[1])]
    ).clamp(*compression)
    objective = ((ks * a + shares * b) ** 2 * (2 - shares) + 1) / (ks * shares)
    which, index = divmod(int(objective.argmin()), len(ks))
    return int(ks[index]), float(shares[which, index])


def check_ranges(steps: tuple[int, int], compression: Range) -> None:
    """Raise ``ValueError`` unless 1 ≤ smallest ≤ largest k ≤ 10⁵, both whole, and 0 < smallest ≤ largest δ ≤ 1."""
    for count in steps:
        check_count("steps", count)
    if steps[1] > _MOST_STEPS:
        raise ValueError(f"steps must be at most {_MOST_STEPS:,}, since all are tried, got {list(steps)}")
    if steps[0] > steps[1]:
        raise ValueError(f"steps must run from the smallest to the largest, got {list(steps)}")
    if not 0 < compression[0] <= compression[1] <= 1:
        raise ValueError(f"compression must be two shares in (0, 1], the smaller first, got {list(compression)}")


def _smaller_root(ks: Tensor, a: float, b: float) -> Tensor:
    """Return for each k the smaller positive root of 2b²δ³ − 2b(b − ka)δ² + 2k²a² + 1, or 0 where there is none.

    Divided by 2b² it is δ³ − mδ² + c with m = 1 − ka/b and c = (2k²a² + 1)/(2b²): positive roots exist for m > 0 and
    27c ≤ 4m³. Viète's formula gives them as (m/3)(1 + 2cos(θ + 2πj/3)), cos 3θ = 1 − 27c/(2m³); for the smaller one,
    j = 2, and small c that is a difference of equals, so it is written here with sines.
    """
    if b == 0:
        return torch.zeros_like(ks)
    m = 1 - ks * (a / b)
    c = (ks * (a / b)) ** 2 + 0.5 / b / b  # b² may vanish where b does not
    exists = (m > 0) & (27 * c <= 4 * m**3)
    m, c = torch.where(exists, m, 1.0), torch.where(exists, c, 0.0)
    angle = torch.arcsin((6.75 * c / m**3).sqrt()) * (2 / 3)
    return torch.where(exists, m / 3 * (2 * torch.sin(angle / 2) ** 2 + math.sqrt(3) * torch.sin(angle)), 0.0)
