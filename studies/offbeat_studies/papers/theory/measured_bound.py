"""A row of the table of bounds: a measured value and its bound."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
COLUMNS = ("Claim", "Setting", "Measured", "Bound", "Ratio", "")
NORMAL_QUANTILE = 1.96  # of the 95 % intervals


@dataclass(frozen=True)
class Row:
    """A measured claim.

    Attributes:
        claim: The algorithm or paper, and the theorem.
        setting: The problem and the run.
        measured: The claim's left side, the mean over the seeds.
        half_width: Half the width of its 95 % confidence interval (normal approximation); 0 where nothing is random.
        bound: The claim's right side.
        should_hold: False for a counter-example: an assumption is broken, or the bound is as misprinted.
    """

    claim: str
    setting: str
    measured: float
    half_width: float
    bound: float
    should_hold: bool = True

    @property
    def ratio(self) -> float:
        """``measured / bound``: below 1 where the bound holds."""
        return self.measured / self.bound

    @property
    def as_expected(self) -> bool:
        """True if the bound holds by more than the interval; fails in a counter-example."""
        if self.should_hold:
            return self.measured + self.half_width <= self.bound
        return self.measured - self.half_width > self.bound

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        if not self.as_expected:
            return "UNEXPECTED"
        return "holds" if self.should_hold else "broken, as expected"


def row(claim: str, setting: str, samples: Array | float, bound: float, *, should_hold: bool = True) -> Row:
    """Return a row from a value for each seed, ``(seeds,)``, or from one exact value."""
    values = np.atleast_1d(np.asarray(samples, dtype=np.float64))
    spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    return Row(claim, setting, float(values.mean()), NORMAL_QUANTILE * spread / len(values) ** 0.5, bound, should_hold)


MeasureAt = Callable[[int, int, np.random.Generator], Row]
"""Measures a bound at a value of the number that grows, with so many seeds."""


def cells(row: Row) -> tuple[str, ...]:
    """Return a row of the table as text, by ``COLUMNS``."""
    spread = f" ± {row.half_width:.2g}" if row.half_width else ""
    return row.claim, row.setting, f"{row.measured:.4g}{spread}", f"{row.bound:.4g}", f"{row.ratio:.4g}", row.verdict
