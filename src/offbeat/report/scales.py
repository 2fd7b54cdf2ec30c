"""Scales on which algorithms are compared, and how a difference on them reads."""

import math
from typing import Protocol

from offbeat import units
from offbeat.report.metrics import Measure
from offbeat.report.summary import SummaryRow
from offbeat.statistics.all_pairs import Observed, Pair


class Scale(Protocol):
    """A scale on which less is better."""

    def values(self, row: SummaryRow) -> dict[int, Observed]:
        """Return an algorithm's values by seed."""
        ...

    def verb(self, row: SummaryRow) -> str:
        """Return what the algorithms did, for instance ``reached 80 %``."""
        ...

    def better(self, row: SummaryRow) -> str:
        """Return what a better one did, for instance ``reached 80 % faster than``."""
        ...

    def amount(self, pair: Pair, row: SummaryRow) -> str | None:
        """Return by how much the first one is better; None if nothing is known."""
        ...

    def interval(self, pair: Pair, row: SummaryRow) -> str:
        """Return the ends of the interval of that amount."""
        ...


class TimeScale:
    """The logarithm of the time to the target."""

    def values(self, row: SummaryRow) -> dict[int, Observed]:
        """See ``Scale``."""
        return row.log_seconds

    def verb(self, row: SummaryRow) -> str:
        """See ``Scale``."""
        return f"reached {target_of(row)}"

    def better(self, row: SummaryRow) -> str:
        """See ``Scale``."""
        return f"{self.verb(row)} faster than"

    def amount(self, pair: Pair, row: SummaryRow) -> str | None:
        """See ``Scale``."""
        if pair.mean is not None:
            return f"{_factor(-pair.mean)} times as fast as"
        return f"at least {_factor(-pair.high)} times as fast as" if pair.high < 0 else None

    def interval(self, pair: Pair, row: SummaryRow) -> str:
        """See ``Scale``."""
        return f"{_factor(-pair.high)} to {_factor(-pair.low)}"


class EndScale:
    """The last value of the measure, negated if higher is better."""

    def values(self, row: SummaryRow) -> dict[int, Observed]:
        """See ``Scale``."""
        sign, rounding = -sign_of(row.measure), row.step / math.sqrt(12)
        return {seed: Observed(sign * end, sign * end, rounding) for seed, end in row.ends.items()}

    def verb(self, row: SummaryRow) -> str:
        """See ``Scale``."""
        return "ended"

    def better(self, row: SummaryRow) -> str:
        """See ``Scale``."""
        return f"ended {self._side(row)}"

    def amount(self, pair: Pair, row: SummaryRow) -> str | None:
        """See ``Scale``."""
        if pair.mean is None:
            return None
        unit = "points" if row.measure.is_share else row.measure.title
        return f"{_difference(row.measure, -pair.mean)} {unit} {self._side(row)}"

    def interval(self, pair: Pair, row: SummaryRow) -> str:
        """See ``Scale``."""
        least, most = row.measure.bounds
        low, high = max(-pair.high, least - most), min(-pair.low, most - least)
        return f"{_difference(row.measure, low)} to {_difference(row.measure, high)}"

    @staticmethod
    def _side(row: SummaryRow) -> str:
        return "above" if row.measure.higher_is_better else "below"


def sign_of(measure: Measure) -> int:
    """Return 1 if higher is better, −1 if lower is."""
    return 1 if measure.higher_is_better else -1


def target_of(row: SummaryRow) -> str:
    """Return the target, as people write it."""
    return row.measure.at(row.target or 0.0)


def _factor(logarithm: float) -> str:
    return units.factor(math.exp(min(logarithm, 700.0)))[1:]


def _difference(measure: Measure, difference: float) -> str:
    return f"{100 * difference:z.1f}" if measure.is_share else units.number(difference)
