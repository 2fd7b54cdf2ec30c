"""Distinct statements: findings that test the same one count once."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from offbeat_studies.papers.figures.figure_result import FigureRecord, Key
from offbeat_studies.papers.figures.finding import Evidence, Finding, Word
from offbeat_studies.papers.figures.verdicts import of_all

EVIDENCE: tuple[Evidence, ...] = ("paper", "theorem", "proxy", "ours")
WORDS: tuple[Word, ...] = ("supported", "not supported", "contradicted", "open")


@dataclass(frozen=True)
class Statement:
    """A statement with all its findings of one class of evidence."""

    text: str
    evidence: Evidence
    findings: Sequence[tuple[FigureRecord, Finding]]
    is_outdated: bool  # whether any finding is

    @property
    def verdict(self) -> Word:
        """The verdict, on all its findings together."""
        return of_all({finding.verdict for _, finding in self.findings})

    @property
    def is_headline(self) -> bool:
        """Report whether the index lists it."""
        return any(finding.headline for _, finding in self.findings)


def statements_of(records: Iterable[FigureRecord], outdated: Collection[Key] = ()) -> list[Statement]:
    """Return the distinct statements of a paper's records, in order.

    Outdated findings are left out where the statement has others.
    """
    groups: dict[tuple[str, str, Evidence], list[tuple[FigureRecord, Finding]]] = {}
    for record in records:
        for finding in record.findings:
            text = finding.statement or finding.claim
            groups.setdefault((record.paper, text, finding.evidence), []).append((record, finding))
    found: list[Statement] = []
    for (_, text, evidence), group in groups.items():
        current = [(record, finding) for record, finding in group if record.key not in outdated]
        found.append(Statement(text, evidence, current or group, not current))
    return found


def counts(statements: Iterable[Statement], evidence: Evidence) -> Counter[Word]:
    """Count the verdicts on the statements of one class of evidence."""
    return Counter(one.verdict for one in statements if one.evidence == evidence)
