"""Verdicts on findings: a fixed rule, with Holm's correction within each paper."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from offbeat.statistics.hypothesis_tests import holm
from offbeat_studies.papers.figures.figure_result import FigureRecord, Key
from offbeat_studies.papers.figures.finding import Finding, Word

LEVEL = 0.05


def with_verdicts(records: Sequence[FigureRecord], outdated: Collection[Key] = ()) -> list[FigureRecord]:
    """Return the records with the verdicts on their findings.

    The tests of one paper are corrected together. Outdated records have no test.
    """
    current: dict[str, list[Finding]] = {}
    for one in records:
        if one.key not in outdated:
            current.setdefault(one.paper, []).extend(finding for finding in one.findings if finding.is_tested)
    adjusted = {
        paper: iter(holm([finding.p for finding in findings if finding.p is not None]))
        for paper, findings in current.items()
    }
    return [
        replace(
            one,
            findings=tuple(
                _judged(finding, next(adjusted[one.paper]))
                if finding.is_tested and one.key not in outdated
                else replace(finding, p_holm=None, verdict="open")
                for finding in one.findings
            ),
        )
        for one in records
    ]


def _judged(finding: Finding, p_holm: float) -> Finding:
    word: Word = "not supported" if p_holm > LEVEL else "supported" if finding.is_for else "contradicted"
    return replace(finding, p_holm=p_holm, verdict=word)


def of_all(words: Collection[Word]) -> Word:
    """Return the verdict on a statement: all its findings must support it."""
    for word in ("contradicted", "not supported", "open"):
        if word in words:
            return word
    return "supported"
