"""The best algorithms of a comparison, with all that are not separated from them."""

from collections.abc import Sequence

from offbeat.report.scales import EndScale, Scale, TimeScale
from offbeat.report.summary import SummaryRow
from offbeat.report.verdict import Verdict


def fastest(rows: Sequence[SummaryRow]) -> list[str]:
    """Return the labels by the time to the target; empty if nothing is known."""
    if rows[0].target is None or any(row.undecided for row in rows) or not any(row.reached for row in rows):
        return []
    return _best(rows, TimeScale())


def best_ends(rows: Sequence[SummaryRow]) -> list[str]:
    """Return the labels by the measure at the end; empty if nothing is known."""
    return [] if any(row.unfinished for row in rows) else _best(rows, EndScale())


def _best(rows: Sequence[SummaryRow], scale: Scale) -> list[str]:
    compared = [row for row in rows if not row.other_world]
    if len(compared) < 2:
        return []
    verdict = Verdict(compared, scale)
    return [] if verdict.is_one_seed else verdict.top
