"""The CSV files beside the pages: all claims, all settings."""

from collections.abc import Collection, Sequence

from offbeat.report.export import csv_bytes
from offbeat_studies.papers.figures.figure_result import FigureRecord, Key
from offbeat_studies.papers.figures.finding import Finding

CLAIMS = "claims.csv"
SETTINGS = "settings.csv"


def claims_csv(records: Sequence[FigureRecord], outdated: Collection[Key]) -> bytes:
    """Return all findings: numbers by seed, effect, interval, test and verdict."""
    header = (
        *("paper", "figure", "scale", "title", "evidence", "statement", "claim", "in_the_paper", "ours", "compared"),
        *("effect_kind", "effect", "low", "high", "allowed_low", "allowed_high", "n", "method", "p", "p_holm"),
        *(
            "verdict",
            "obstacle",
            "processor_seconds",
            "seeds",
            "ours_by_seed",
            "compared_times_factor_by_seed",
            "outdated",
        ),
    )
    rows = (_row(one, finding, one.key in outdated) for one in records for finding in one.findings)
    return csv_bytes([header, *rows])


def _row(one: FigureRecord, finding: Finding, is_outdated: bool) -> tuple[object, ...]:
    effect = finding.effect
    numbers = ("",) * 6 if effect is None else (effect.kind, effect.value, effect.low, effect.high, *effect.allowed)
    return (
        *(one.page, one.name, one.scale, one.figure, finding.evidence, finding.statement, finding.claim),
        *(finding.paper, finding.ours, finding.other),
        *("" if number is None else number for number in numbers),
        *(finding.n, finding.method, _p(finding.p), _p(finding.p_holm), finding.verdict, finding.obstacle),
        "" if finding.processor_seconds is None else finding.processor_seconds,
        " ".join(map(str, one.seeds)),
        *(_values(values) for values in (finding.ours_by_seed, finding.other_by_seed)),
        "yes" if is_outdated else "no",
    )


def _p(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _values(values: Sequence[float | None]) -> str:
    return " ".join("–" if value is None else f"{value:g}" for value in values)


def settings_csv(records: Sequence[FigureRecord], outdated: Collection[Key]) -> bytes:
    """Return the settings, tuning and cost of all figures."""
    header = "figure", "scale", "title", "world", "tuning", "differs", "core_minutes", "file", "command", "outdated"
    rows = (
        (
            *(one.name, one.scale, one.figure, one.world, "\n".join(one.tuned), "\n".join(one.differs), one.minutes),
            *(one.file, one.command, "yes" if one.key in outdated else "no"),
        )
        for one in records
    )
    return csv_bytes([header, *rows])
