"""The page of a paper: figures, claims and numbers of each file and scale."""

from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

from offbeat import units
from offbeat_studies.papers.figures.figure_result import FigureRecord, Key, seeds_option
from offbeat_studies.papers.results.claims_table import (
    claims_table,
    effect_text,
    panel_name,
    shared_evidence,
    verdict_text,
)
from offbeat_studies.papers.results.csv_files import CLAIMS, SETTINGS
from offbeat_studies.papers.results.markdown import folded, table
from offbeat_studies.papers.results.statements import EVIDENCE, WORDS, counts, statements_of

CLASS_NAMES = {"paper": "paper's setting", "theorem": "theorem", "proxy": "proxy", "ours": "ours"}


def title_of(records: Sequence[FigureRecord]) -> str:
    """Return the title of a page: the paper's, if all records are of one."""
    return records[0].paper if len({one.paper for one in records}) == 1 else "Algorithms of other papers"


def paper_page(records: Sequence[FigureRecord], outdated: Collection[Key], images: str, folder: Path) -> str:
    """Return the page of a paper's records."""
    files: dict[tuple[str, str], list[FigureRecord]] = {}
    for one in records:
        files.setdefault((one.file, one.scale), []).append(one)
    lines = [
        f"# {title_of(records)}\n",
        f"{summary(records, outdated)}\n",
        "Each claim is tested once in each panel. A cell has the verdict, then the measured effect with its 95 % "
        "interval: `×` is the ratio of the claim's two sides, points are their difference; the limit is what the claim "
        f"allows (†: a number of ours). p-values are corrected for {_tests(records)}, of all classes and scales; "
        "intervals are not. A swing is the highest less the lowest value. Quotation marks hold the paper's words. The "
        "line above a table gives the class of evidence and the seeds. “(6 of 10 seeds)”: the mean of only the 6 runs "
        "that reached the target or did not diverge. [The index](index.md) defines classes, tests and verdicts; "
        f"[{CLAIMS}]({CLAIMS}) has each claim with its p-value, its cost, the numbers of each seed and the statement "
        f"with which it counts once, [{SETTINGS}]({SETTINGS}) settings and tuning.\n",
    ]
    if old := [one for one in records if one.key in outdated]:
        lines.append(_update_note(old, len(records), folder))
    for group in files.values():
        source = [] if group[0].paper == title_of(records) else [f"Paper: {group[0].paper}.\n"]
        lines += _file_section(group, outdated, images, source)
    return "\n".join(lines)


def page_of(record: FigureRecord) -> str:
    """Return the page of a single figure, for the folder of its pictures."""
    lines = [
        f"## {record.figure}, {record.scale} scale\n",
        f"{record.question}\n",
        *(f"![{record.figure}]({figure})\n" for figure in record.figures),
        *((record.table, "") if record.table else ()),
        *table(
            ("claim", "in the paper", "ours", "", "effect", "verdict"),
            (
                (one.claim, one.paper, one.ours, one.other, effect_text(one), verdict_text(one))
                for one in record.findings
            ),
        ),
        "The p-values behind the verdicts are corrected among the claims of this figure alone.\n",
        f"{record.world}.\n",
    ]
    if record.tuned:
        lines += ["Tuning:\n", *(f"- {line}" for line in record.tuned), ""]
    return "\n".join([*lines, *_differences([record]), _command([record])])


def summary(records: Sequence[FigureRecord], outdated: Collection[Key]) -> str:
    """Return the numbers of distinct statements, by class of evidence and verdict."""
    statements = statements_of(records, outdated)
    sentences: list[str] = []
    for evidence in EVIDENCE:
        found = counts(statements, evidence)
        if found:
            words = ", ".join(f"{found[word]} {word}" for word in WORDS)
            sentences.append(f"{CLASS_NAMES[evidence].capitalize()}: {_claims(found.total())}, {words}.")
    return " ".join(sentences)


def _tests(records: Sequence[FigureRecord]) -> str:
    """Name the tests that are corrected together."""
    if len({one.paper for one in records}) > 1:
        return "the tests of each paper"
    return f"the paper's {sum(finding.p_holm is not None for one in records for finding in one.findings)} tests"


def _claims(number: int) -> str:
    return f"{number} distinct claim{'' if number == 1 else 's'}"


def _file_section(
    records: Sequence[FigureRecord], outdated: Collection[Key], images: str, source: Sequence[str]
) -> list[str]:
    """Return the section on a file's figures at one scale, ``source`` first."""
    first = records[0]
    lines = [f"## {first.file_figure or first.figure}, {first.scale} scale\n", *source]
    lines += [f"{first.file_question}\n"] if first.file_question else []
    pictures: list[str] = []
    for number, one in enumerate(records):
        question = one.question.removeprefix(one.file_question).strip()
        mark = " *Outdated.*" if one.key in outdated else ""
        if question or mark:
            lines.append(f"`{panel_name(one)}`: {question}{mark}".replace(":  *", ": *") + "\n")
        drawn = [f"![{_alternative(one, figure)}]({images}/{figure})\n" for figure in one.figures]
        shown = 0 if number else 1
        lines += drawn[:shown]
        pictures += drawn[shown:]
        lines += [one.table, ""] if one.table else []
    lines += folded("More figures", pictures)
    lines.append(_evidence_line(records))
    reason = _reason(records, outdated)
    lines += [f"All claims are open: {reason}.\n"] if reason else []
    if reason == "outdated":
        claims = dict.fromkeys(
            f"{finding.claim} *(ours)*" if finding.evidence == "ours" else finding.claim
            for one in records
            for finding in one.findings
        )
        lines.append(f"{'. '.join(claims)}.\n")
    else:
        lines += claims_table(records, has_cells=not reason)
    lines += _numbers_table(records) if reason != "outdated" else []
    return [*lines, *folded("The paper's setting and ours", _differences(records)[1:]), _command(records)]


def _alternative(record: FigureRecord, figure: str) -> str:
    """Return a picture's alternative text: the figure, and its axis or measure."""
    more = Path(figure).stem.removeprefix(Path(record.figures[0]).stem).replace("-", " ").strip()
    return f"{record.figure}, {more}" if more else record.figure


def _evidence_line(records: Sequence[FigureRecord]) -> str:
    first = records[0]
    samples: dict[str, list[str]] = {}
    for one in records:
        sample = f"{_spans(one.seeds)} (n = {len(one.seeds)})" if one.seeds else f"n = {one.findings[0].n}"
        samples.setdefault(sample, []).append(panel_name(one))
    words = "; ".join(
        f"{', '.join(panels)}: {sample}" if len(samples) > 1 else sample for sample, panels in samples.items()
    )
    shared = shared_evidence(records)
    evidence = f"**{CLASS_NAMES[shared]}**" if shared else f"**{CLASS_NAMES[first.evidence]}**, unless marked"
    start = f"{panel_name(first)}: " if len({one.world for one in records}) > 1 else ""
    return f"Evidence: {evidence}; {words}. {start}{first.world}.\n"


def _spans(seeds: Sequence[int]) -> str:
    return f"seeds {seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else f"seed {seeds[0]}"


def _reason(records: Sequence[FigureRecord], outdated: Collection[Key]) -> str:
    """Return why all claims are open; empty if one is not, or if reasons differ."""
    findings = [(one, finding) for one in records for finding in one.findings]
    if any(finding.verdict != "open" for _, finding in findings):
        return ""
    reasons = {"outdated" if one.key in outdated else finding.obstacle or "not tested" for one, finding in findings}
    return reasons.pop() if len(reasons) == 1 else ""


def _numbers_table(records: Sequence[FigureRecord]) -> list[str]:
    """Return our numbers, and the paper's below."""
    published = {(f"paper, {quantity}", ""): values for one in records for quantity, values in one.published.items()}
    rows = {
        (panel_name(one), quantity): values
        for one in records
        if not one.table
        for quantity, values in _values(one).items()
    } | published
    labels = list(dict.fromkeys(label for values in rows.values() for label in values))
    if not labels:
        return []
    return table(
        ("", "", *labels), ((*names, *(values.get(label, "–") for label in labels)) for names, values in rows.items())
    )


def _values(record: FigureRecord) -> dict[str, dict[str, str]]:
    """Return the values of each quantity by algorithm, the one of most claims first."""
    quantities = Counter(finding.quantity for finding in record.findings if finding.values).most_common()
    return {
        quantity: {
            label: value
            for finding in record.findings
            if finding.quantity == quantity
            for label, value in finding.values.items()
        }
        for quantity, _ in quantities
    }


def _differences(records: Sequence[FigureRecord]) -> list[str]:
    """Return the notes on the setting, each once."""
    lines = dict.fromkeys(line for one in records for line in one.differs)
    return ["The paper's setting and ours:\n", *(f"- {line}" for line in lines), ""] if lines else []


def _command(records: Sequence[FigureRecord]) -> str:
    """Return the command that measures figures of one file and scale, and its time."""
    duration = units.duration(60 * sum(one.minutes for one in records))
    names = " ".join(one.name for one in records)
    option = seeds_option(max(len(one.seeds) for one in records))
    command = f"offbeat papers {names} --scale {records[0].scale}{option}"
    return f"`{command}` · `{records[0].file}` · {duration} of one core\n"


def _update_note(records: Sequence[FigureRecord], figures: int, folder: Path) -> str:
    """Return the note on outdated figures, with the commands that measure them again."""
    groups: dict[str, list[FigureRecord]] = {}
    for one in records:
        groups.setdefault(one.scale, []).append(one)
    commands = ", ".join(
        f"`offbeat papers {' '.join(one.name for one in group)} --scale {scale}"
        f"{seeds_option(max(len(one.seeds) for one in group))} --pages {folder.as_posix()}`"
        for scale, group in groups.items()
    )
    return (
        f"**Outdated: {len(records)} of {figures} figures on this page**, as marked, were measured before their "
        f"settings or claims changed; their verdicts are open. To measure them again: {commands}.\n"
    )
