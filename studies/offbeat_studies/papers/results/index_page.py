"""The index of the results: the rules, then a chart and a table for each paper."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from offbeat_studies.papers.figures.figure_result import FigureRecord, Key
from offbeat_studies.papers.figures.finding import Evidence, Finding
from offbeat_studies.papers.results.claims_table import effect_text, limit_text
from offbeat_studies.papers.results.csv_files import CLAIMS, SETTINGS
from offbeat_studies.papers.results.markdown import folded, table
from offbeat_studies.papers.results.paper_page import CLASS_NAMES, title_of
from offbeat_studies.papers.results.statement_chart import chart_name
from offbeat_studies.papers.results.statements import EVIDENCE, WORDS, Statement, counts, statements_of

_MOST_EFFECTS = 2  # of a statement, in the table

_RULES = """\
**Class of evidence.** *Paper's setting*: the paper's model, data, clients and rounds, as far as it gives them.
*Theorem*: the paper's theorem, on small problems of ours that meet its assumptions. *Proxy*: the paper's claim, tested
with another model, data or scale; the verdict holds there only. *Ours*: our claim, beside the paper's nearest
words.

**Test.** Each panel tests a claim seed against seed: inequalities by paired t on log ratios (times, bytes, swings,
losses) or differences (accuracies; losses with a tolerance), equalities against both limits. A run that missed its
target bounds the effect of its pair. A null hypothesis gets the bounds that favour it, tested by t or, if one is
infinite, by signs; “at least”, “at most” and “to” mark means of bounds. For a theorem, t over independent runs.
p-values (rounded up) are two-sided and corrected by Holm over all tests of a paper; intervals are not. “±” is half a
95 % interval.

| verdict | the first rule that holds |
|---|---|
| contradicted | in one test the effect is outside the limit, p ≤ 0.05 |
| not supported | one test has p > 0.05 after correction, even if its interval excludes the limit |
| open | a test is missing, for the reason given; outdated: settings or claims changed |
| supported | in every test the effect is within the limit, p ≤ 0.05 |
"""


def index_page(
    papers: Mapping[str, Sequence[FigureRecord]],
    outdated: Collection[Key],
    missing: Mapping[str, Sequence[str]],
    images: str,
) -> str:
    """Return the index; ``papers`` are the records by page."""
    statements = {page: statements_of(group, outdated) for page, group in papers.items()}
    titles = {page: _short_title(title_of(group)) for page, group in papers.items()}
    rows = [
        (f"[{titles[page]}]({page}.md)", *(_count(statements[page], evidence) for evidence in EVIDENCE))
        for page in papers
    ]
    lines = [
        "# The papers, reproduced\n",
        f"Numbers of distinct claims that are {' / '.join(WORDS)}, by class of evidence. A claim that several panels "
        "test counts once, and is supported only if all of them support it.\n",
        *table(("", *(CLASS_NAMES[evidence] for evidence in EVIDENCE)), rows),
        _RULES,
        "Tables list main claims: the paper's words in quotation marks; the limit (†: a number of ours); "
        "effect with 95 % interval (`×`: ratio of the sides) and n of the deciding tests; how many tests are "
        f"{'/'.join(WORDS)}. A chart's dot is an effect's distance from its limit, in half-intervals (at most 8); "
        "bounds have none.\n",
    ]
    for page in papers:
        lines += [f"## {titles[page]}\n", f"![Claims of {page}]({images}/{chart_name(page)})\n"]
        if main := [one for one in statements[page] if one.is_headline]:
            lines += table(
                ("claim", "in the paper", "evidence", "limit", "effect", "n", "verdict", "tests"), _rows(main)
            )
    lines += [
        f"[{CLAIMS}]({CLAIMS}) has all claims with p-values, cost and the numbers of each seed,",
        f"[{SETTINGS}]({SETTINGS}) settings and tuning. `offbeat papers --pages docs/results` writes the pages from",
        "`ledger.json`, byte for byte.\n",
    ]
    names = [f"- {scale} scale: {', '.join(dict.fromkeys(names))}" for scale, names in missing.items() if names]
    return "\n".join([*lines, *folded("Not run yet", [*names, ""] if names else [])])


def _short_title(paper: str) -> str:
    """Return the name in parentheses that ends a title, or what is before a colon."""
    return paper[:-1].rpartition("(")[2] if paper.endswith(")") else paper.partition(":")[0]


def _count(statements: Sequence[Statement], evidence: Evidence) -> str:
    found = counts(statements, evidence)
    return " / ".join(str(found[word]) for word in WORDS) if found else "–"


def _rows(statements: Sequence[Statement]) -> list[tuple[str, ...]]:
    """Return a row for each statement and class of evidence; ″ repeats the text above."""
    order = list(dict.fromkeys(one.text for one in statements))
    rows: list[tuple[str, ...]] = []
    above: tuple[str, str] | None = None
    for one in sorted(statements, key=lambda one: order.index(one.text)):
        text, paper, *others = _row(one)
        rows.append(("″", "″", *others) if (text, paper) == above else (text, paper, *others))
        above = text, paper
    return rows


def _row(one: Statement) -> tuple[str, ...]:
    findings = [finding for _, finding in one.findings]
    deciding = [finding for finding in findings if finding.verdict == one.verdict]
    effects = [text.removesuffix(" points") for finding in deciding if (text := effect_text(finding)) != "–"]
    more = f" and {len(effects) - _MOST_EFFECTS} more" if len(effects) > _MOST_EFFECTS else ""
    limits = dict.fromkeys(text for finding in deciding if (text := limit_text(finding)))
    sizes = sorted({finding.n for finding in deciding})
    verdicts = Counter(finding.verdict for finding in findings)
    return (
        one.text,
        findings[0].paper,
        CLASS_NAMES[one.evidence],
        "; ".join(limits) or "–",
        "; ".join(effects[:_MOST_EFFECTS]) + more or "–",
        str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}",
        _verdict(one, deciding),
        "/".join(str(verdicts[word]) for word in WORDS),
    )


def _verdict(one: Statement, deciding: Sequence[Finding]) -> str:
    """Return the verdict; the reasons in parentheses if it is open."""
    if one.verdict != "open":
        return one.verdict
    reasons = ["outdated"] if one.is_outdated else list(dict.fromkeys(finding.obstacle for finding in deciding))
    return f"open ({'; '.join(filter(None, reasons)) or 'not tested'})"
