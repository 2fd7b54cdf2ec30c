"""The table of claims of a file at one scale, and its texts."""

from collections.abc import Sequence

from papers.figures.figure_result import FigureRecord
from papers.figures.finding import Evidence, Finding
from papers.results.markdown import table


def effect_text(finding: Finding) -> str:
    """Return the effect in words, or – without one."""
    return finding.effect.text if finding.effect is not None and finding.effect.text else "–"


def limit_text(finding: Finding) -> str:
    """Return the limit that the claim sets to its effect; empty if unknown."""
    effect = finding.effect
    if effect is None or not effect.text:
        return ""
    scale = 100 if effect.text.endswith("points") else 1
    low, high = (None if bound is None else f"{scale * bound + 0.0:.3g}" for bound in effect.allowed)
    if low is not None and high is not None:
        return f"{low} to {high}"
    return f"≤{high}" if high is not None else f"≥{low}"


def verdict_text(finding: Finding) -> str:
    """Return the verdict; the obstacle in parentheses if it is open."""
    return f"open ({finding.obstacle})" if finding.verdict == "open" and finding.obstacle else finding.verdict


def claims_table(records: Sequence[FigureRecord], *, has_cells: bool) -> list[str]:
    """Return the table of claims; without cells where the verdict is the same for all."""
    panels = records if has_cells else ()
    cells = [{finding.claim: _cell(finding) for finding in one.findings} for one in panels]
    papers: dict[str, dict[str, None]] = {}
    limits: dict[str, dict[str, None]] = {}
    own: dict[str, str] = {}
    has_classes = shared_evidence(records) is None
    for one in records:
        for finding in one.findings:
            papers.setdefault(finding.claim, {})[finding.paper] = None
            limits.setdefault(finding.claim, {})[limit_text(finding)] = None
            own[finding.claim] = " *(ours)*" if finding.evidence == "ours" and has_classes else ""
    return table(
        ("claim", "in the paper", "limit", *map(panel_name, panels)),
        (
            (
                f"{claim}{own[claim]}",
                "; ".join(texts),
                "; ".join(filter(None, limits[claim])),
                *(panel.get(claim, "–") for panel in cells),
            )
            for claim, texts in papers.items()
        ),
    )


def _cell(finding: Finding) -> str:
    effect, verdict = effect_text(finding), verdict_text(finding)
    word = f"**{verdict}**" if verdict == "contradicted" else verdict
    return f"{word} · {effect}" if effect != "–" else word


def panel_name(record: FigureRecord) -> str:
    """Return the name of a record's figure, without its paper."""
    return record.name.rpartition("/")[2]


def shared_evidence(records: Sequence[FigureRecord]) -> Evidence | None:
    """Return the class of evidence of all findings; None if there are several."""
    found: set[Evidence] = {finding.evidence for one in records for finding in one.findings}
    return found.pop() if len(found) == 1 else None
