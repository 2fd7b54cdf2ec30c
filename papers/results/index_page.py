"""The index of the results: rules, a chart and a table for each paper."""

from collections.abc import Collection, Mapping, Sequence

from papers.figures.figure_result import FigureRecord, Key
from papers.results.csv_files import CLAIMS, SETTINGS
from papers.results.markdown import folded, table
from papers.results.paper_page import CLASS_NAMES, effect_text
from papers.results.statement_chart import chart_name
from papers.results.statements import EVIDENCE, WORDS, Statement, counts, statements_of

_MOST_EFFECTS = 2  # of a statement, in the table

_RULES = """\
**Class of evidence.** *Paper's setting*: model, data, clients and rounds are the paper's, as far as it gives them.
*Proxy*: a smaller or another model, data set or number of rounds. *Ours*: a claim of no paper. The three are never
added up. A statement that several panels test counts once.

**Verdict.** Each claim is an inequality between two quantities. They are compared seed against seed: paired t on log
ratios for times, bytes, swings and losses, paired t on differences for accuracies and for equalities (two one-sided
tests), a sign test where a run did not reach its target. All p-values of a paper are corrected together, by Holm.

| verdict | rule |
| --- | --- |
| supported | the effect is on the claim's side, p ≤ 0.05 after the correction, in every panel |
| contradicted | it is on the other side, p ≤ 0.05 after the correction, in at least one panel |
| not supported | neither: the seeds leave both possible |
| open | not tested: under five seeds, all alike, tuned to the edge of the tries, at chance level, or outdated |
"""


def index_page(
    papers: Mapping[str, Sequence[FigureRecord]],
    outdated: Collection[Key],
    missing: Mapping[str, Sequence[str]],
    images: str,
) -> str:
    """Return the index; ``papers`` are the records by page."""
    statements = {page: statements_of(group, outdated) for page, group in papers.items()}
    rows = [
        (f"[{group[0].paper}]({page}.md)", *(_count(statements[page], evidence) for evidence in EVIDENCE))
        for page, group in papers.items()
    ]
    lines = [
        "# The papers, reproduced\n",
        f"Distinct claims that are {' / '.join(WORDS)}, by class of evidence:\n",
        *table(("", *(CLASS_NAMES[evidence] for evidence in EVIDENCE)), rows),
        _RULES,
        "In the charts a dot is a panel of a claim: how far its effect is from the claim's limit, in half-widths of "
        "its 95 % interval. Statements without a dot have no interval.\n",
    ]
    for page, group in papers.items():
        lines += [
            f"## {group[0].paper}\n",
            f"![Claims of {page}]({images}/{chart_name(page)})\n",
            *table(
                ("claim", "in the paper", "ours", "n", "evidence", "verdict"),
                (_row(one) for one in statements[page] if one.is_headline),
            ),
        ]
    lines += [
        f"[{CLAIMS}]({CLAIMS}) has every claim with effect, interval, n, p-values, cost and the numbers of each seed;",
        f"[{SETTINGS}]({SETTINGS}) every figure's settings and tuning. `python -m papers --pages docs/results` writes",
        "the pages from `ledger.json`, byte for byte.\n",
    ]
    names = [f"- {scale} scale: {', '.join(dict.fromkeys(names))}" for scale, names in missing.items() if names]
    return "\n".join([*lines, *folded("Not run yet", [*names, ""] if names else [])])


def _count(statements: Sequence[Statement], evidence: str) -> str:
    found = counts(statements, next(one for one in EVIDENCE if one == evidence))
    return " / ".join(str(found[word]) for word in WORDS) if found else "–"


def _row(one: Statement) -> tuple[str, ...]:
    findings = [finding for _, finding in one.findings]
    effects = [text for finding in findings if (text := effect_text(finding)) != "–"]
    more = f" and {len(effects) - _MOST_EFFECTS} more" if len(effects) > _MOST_EFFECTS else ""
    sizes = sorted({finding.n for finding in findings})
    return (
        one.text,
        findings[0].paper,
        "; ".join(effects[:_MOST_EFFECTS]) + more or "–",
        str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}",
        CLASS_NAMES[one.evidence],
        f"{one.verdict}, outdated" if one.is_outdated else one.verdict,
    )
