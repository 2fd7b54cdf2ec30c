"""The table of claims of a file at one scale, and its texts."""

import math
from collections.abc import Sequence

from offbeat_studies.papers.figures.figure_result import FigureRecord
from offbeat_studies.papers.figures.finding import Evidence, Finding
from offbeat_studies.papers.results.markdown import table


def effect_text(finding: Finding) -> str:
    """Return the effect in words, or – without one."""
    return finding.effect.text if finding.effect is not None and finding.effect.text else "–"


def limit_text(finding: Finding) -> str:
    """Return a claim's limit, with the unit of its effect; empty if unknown.

    † marks a number of ours.
    """
    effect = finding.effect
    if effect is None or (not effect.text and effect.kind != "ratio"):
        return ""
    scale, unit = (100, " points") if effect.text.endswith("points") else (1, "")
    sign = "× " if effect.kind == "ratio" else ""
    mark = "†" if finding.has_own_limit else ""
    low, high = (None if bound is None else f"{scale * bound + 0.0:.3g}" for bound in effect.allowed)
    if low is not None and high is not None:
        return f"{sign}{low} to {high}{unit}{mark}"
    bound = f"≤ {sign}{high}" if high is not None else f"≥ {sign}{low}"
    return f"{bound}{unit.removesuffix('s') if bound.endswith(' 1') else unit}{mark}"


def verdict_text(finding: Finding) -> str:
    """Return the verdict.

    In parentheses: why it is open, or the p-value of a test that decides nothing.
    """
    if finding.verdict == "open" and finding.obstacle:
        return f"open ({finding.obstacle})"
    if finding.verdict == "not supported" and finding.p_holm is not None:
        return f"not supported (p = {math.ceil(100 * finding.p_holm) / 100:.2f})"  # up: not as 0.05
    return finding.verdict


def claims_table(records: Sequence[FigureRecord], *, has_cells: bool) -> list[str]:
    """Return the table of claims; without cells where the verdict is the same for all.

    A claim has a row for each limit; ″ repeats its texts. Findings without a known limit are in the first.
    """
    has_classes = shared_evidence(records) is None
    groups: dict[str, dict[str, dict[str, Finding]]] = {}  # by claim, limit, figure
    for one in records:
        for finding in one.findings:
            groups.setdefault(finding.claim, {}).setdefault(limit_text(finding), {})[one.name] = finding
    panels = records if has_cells else ()
    rows: list[tuple[str, ...]] = []
    for claim, by_limit in groups.items():
        unknown = by_limit.pop("", {})
        first = next(iter(by_limit), "")
        by_limit[first] = by_limit.get(first, {}) | unknown
        findings = [finding for row in by_limit.values() for finding in row.values()]
        mark = " *(ours)*" if has_classes and all(finding.evidence == "ours" for finding in findings) else ""
        papers = "; ".join(dict.fromkeys(finding.paper for finding in findings))
        for limit, row in by_limit.items():
            texts = (f"{claim}{mark}", papers) if limit == first else ("″", "″")
            rows.append((*texts, limit, *(_cell(row[one.name]) if one.name in row else "–" for one in panels)))
    return table(("claim", "in the paper", "limit", *map(panel_name, panels)), rows)


def _cell(finding: Finding) -> str:
    """Return the verdict and the effect, whose unit stands beside the limit."""
    effect, verdict = effect_text(finding).removesuffix(" points"), verdict_text(finding)
    word = f"**{verdict}**" if verdict == "contradicted" else verdict
    return f"{word} · {effect}" if effect != "–" else word


def panel_name(record: FigureRecord) -> str:
    """Return the name of a record's figure, without its paper."""
    return record.name.rpartition("/")[2]


def shared_evidence(records: Sequence[FigureRecord]) -> Evidence | None:
    """Return the class of evidence of all findings; None if there are several."""
    found: set[Evidence] = {finding.evidence for one in records for finding in one.findings}
    return found.pop() if len(found) == 1 else None
