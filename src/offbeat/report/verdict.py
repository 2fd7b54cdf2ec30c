"""Verdict of a comparison: which algorithms are separated."""

import math
from collections.abc import Iterator, Sequence

from offbeat.report.scales import EndScale, Scale, TimeScale
from offbeat.report.summary import SummaryRow
from offbeat.statistics.all_pairs import Observed, Pair, all_pairs, seeds_needed


class Verdict:
    """The algorithms, best first, and which of them are separated.

    Attributes:
        scale: On which they are compared.
        pairs: All pairs, with simultaneous intervals.
        order: The labels, best first.
        top: The best, and those that are not separated from it.
        lower: Those from which every one of ``top`` is separated.
        middle: The others: the best is separated from them, some of ``top`` is not.
    """

    def __init__(self, rows: Sequence[SummaryRow], scale: Scale) -> None:
        values = {row.label: scale.values(row) for row in rows}
        self.scale = scale
        self.pairs = all_pairs(values)
        self.order = sorted(values, key=lambda label: _rank(list(values[label].values())))
        best = self.order[0]
        self.top = [label for label in self.order if not self._is_better(best, label)]
        behind = [label for label in self.order if label not in self.top]
        self.lower = [label for label in behind if all(self._is_better(one, label) for one in self.top)]
        self.middle = [label for label in behind if label not in self.lower]

    @property
    def is_one_seed(self) -> bool:
        """Return whether no two algorithms share two seeds."""
        return all(pair.seeds < 2 for pair in self.pairs)

    def statements(self) -> Iterator[tuple[str, str]]:
        """Yield the pairs of which the finding says that the first is better."""
        for one in self.top:
            for other in self.lower:
                yield one, other
        for other in self.middle:
            yield self.order[0], other

    def more_seeds(self) -> int | None:
        """Return a guess at how many more seeds would separate the first two.

        None if they are separated, or differ by less than a standard error: those are often equal.
        """
        pair = self.pair(*self.top[:2]) if len(self.top) > 1 else None
        if pair is None or pair.mean is None or not pair.deviation:
            return None
        needed = seeds_needed(pair, len(self.pairs))
        is_small = abs(pair.mean) < pair.deviation / math.sqrt(pair.seeds)
        return None if is_small or needed is None or needed <= pair.seeds else needed - pair.seeds

    def pair(self, first: str, second: str) -> Pair | None:
        """Return the difference of two algorithms; None without a common seed."""
        for pair in self.pairs:
            if (pair.first, pair.second) == (first, second):
                return pair
            if (pair.first, pair.second) == (second, first):
                return pair.reversed()
        return None

    def _is_better(self, first: str, second: str) -> bool:
        pair = self.pair(first, second) if first != second else None
        return pair is not None and pair.high < 0


def verdict(rows: Sequence[SummaryRow]) -> Verdict:
    """Return the verdict on the time to the target or, without one, on the end.

    Algorithms in another world than the baseline's are left out.
    """
    scale = EndScale() if rows[0].target is None else TimeScale()
    return Verdict([row for row in rows if not row.other_world], scale)


def _rank(values: Sequence[Observed]) -> tuple[float, float]:
    """Return what sorts algorithms: the share of unknown values, the others' mean."""
    known = [one.high for one in values if math.isfinite(one.high)]
    return 1 - len(known) / len(values), sum(known) / max(len(known), 1)
