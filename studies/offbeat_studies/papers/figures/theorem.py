"""Figures of theorems: a bound, measured on small problems as a number grows."""

import json
import math
import re
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any, Literal

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter
from offbeat_core.errors import OffbeatError, did_you_mean
from offbeat_core.tables.section import Section
from pydantic import Field, field_validator, model_validator

from offbeat.report.export import write_file
from offbeat.report.plot_style import GREY, STYLE, WIDTH, colours, png, tidy
from offbeat.runs.worker_processes import end_with_parent
from offbeat.statistics.hypothesis_tests import Range, TestedEffect, t_test
from offbeat_studies.papers.figures.figure_result import DOTS_PER_INCH, FigureResult
from offbeat_studies.papers.figures.finding import Effect, Finding
from offbeat_studies.papers.figures.paper_figure import PaperFigure, fingerprint_of
from offbeat_studies.papers.figures.sections import FileTables, Scale, Statement
from offbeat_studies.papers.theory.measured_bound import NORMAL_QUANTILE, Row
from offbeat_studies.papers.theory.sweeps import SWEEPS, Point, slope_with_error, sweep

Values = Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(strict=False, min_length=2)]
_RESULT = "points.json"
_QUANTITIES = {
    "largest_ratio": "largest ratio of measured to bound",
    "smallest_ratio": "smallest ratio of measured to bound",
    "slope": "power of the number",
}
_ALGORITHM = re.compile("^(fedbuff|fedfa|fedlaavg|async_comm_sgd)_")  # at the start of a sweep's name


class TheorySection(Section):
    """``[theory]``: the seeds and the numbers that grow."""

    seeds: Annotated[int, Field(ge=2)]
    """Independent runs at each value."""
    sweeps: Annotated[dict[str, Values], Field(min_length=1)]
    """The values of each number that grows, by the names in ``papers.theory.sweeps``."""

    @field_validator("sweeps")
    @classmethod
    def _check_known(cls, sweeps: dict[str, Values]) -> dict[str, Values]:
        for name, values in sweeps.items():
            if name not in SWEEPS:
                raise ValueError(did_you_mean(name, SWEEPS))
            if 0 in values and name != "fedbuff_staleness":
                raise ValueError(f"{name}: values must be 1 or more")
        return sweeps


class TheoremClaim(Statement):
    """``[[claims]]``: a statement of a theorem, as an inequality."""

    quantity: Literal["largest_ratio", "smallest_ratio", "slope"]
    """largest_ratio, smallest_ratio: of measured to bound. slope: p where the measured value grows as the number to the
    power p."""
    of: str | Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
    """The sweep; for ratios also several, of which the most extreme point counts."""
    relation: Literal["at most", "at least"]
    """The inequality."""
    value: Annotated[float, Field(allow_inf_nan=False)]
    """The number to compare with."""

    @property
    def has_chosen_limit(self) -> bool:
        """Report whether somebody chose the limit, which is not the theorem's."""
        return self.quantity == "slope"

    @property
    def sweeps(self) -> tuple[str, ...]:
        """The names of its sweeps."""
        return (self.of,) if isinstance(self.of, str) else self.of

    @model_validator(mode="after")
    def _check(self) -> "TheoremClaim":
        if self.quantity == "slope" and len(self.sweeps) > 1:
            raise ValueError("a slope is of one sweep")
        if (self.quantity, self.relation) in (("largest_ratio", "at least"), ("smallest_ratio", "at most")):
            raise ValueError(
                "claims are about all points: largest_ratio goes with at most, smallest_ratio with at least"
            )
        return self


class TheoremTables(FileTables):
    """A theorem's file."""

    theory: TheorySection
    claims: Annotated[tuple[TheoremClaim, ...], Field(strict=False, min_length=1)]


@dataclass(frozen=True)
class TheoremFigure(PaperFigure):
    """A theorem whose bound is measured, the same at all scales."""

    claims: Sequence[TheoremClaim]
    theory: TheorySection

    def fingerprint(self, scale: str) -> str:
        """Return a hash of the settings and claims, the same at all scales."""
        return fingerprint_of([self.theory.model_dump(mode="json"), [claim.inequality() for claim in self.claims]])


def load_theorem(path: Path, table: dict[str, Any]) -> TheoremFigure:
    """Return a theorem from the table of its file."""
    found = TheoremTables.read(table, path)
    for claim in found.claims:
        for sweep_name in claim.sweeps:
            if sweep_name not in found.theory.sweeps:
                raise OffbeatError(f"{path}: claim {claim.name!r}: {did_you_mean(sweep_name, found.theory.sweeps)}")
        if claim.quantity == "slope" and 0 in found.theory.sweeps[claim.sweeps[0]]:
            raise OffbeatError(f"{path}: claim {claim.name!r}: a slope needs values above 0")
    scales: dict[str, Scale] = {**found.scales}
    name, section = f"{path.parent.name}/{path.stem}", found.reproduction
    return TheoremFigure(name, path, section, section, scales, found.claims, found.theory)


def measure(theorem: TheoremFigure, folder: Path, jobs: int) -> None:
    """Measure a theorem's bound, ``jobs`` sweeps at once; write it into a folder."""
    theory = theorem.theory
    jobs = min(jobs, len(theory.sweeps))
    with ProcessPoolExecutor(jobs, get_context("spawn"), _begin_process) as pool:
        timed = pool.map(_timed_sweep, theory.sweeps, theory.sweeps.values(), repeat(theory.seeds))
        found = dict(zip(theory.sweeps, timed, strict=True))
    result = {
        "theory": theory.model_dump(mode="json"),
        "points": {name: points for name, (points, _) in found.items()},
        "seconds": {name: seconds for name, (_, seconds) in found.items()},
    }
    write_file(folder / _RESULT, json.dumps(result, indent=1).encode())


def _begin_process() -> None:
    """End without a traceback at Ctrl-C, and when the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=end_with_parent, daemon=True).start()


def _timed_sweep(name: str, values: Sequence[int], seeds: int) -> tuple[list[dict[str, Any]], float]:
    """Return a sweep's points and its processor seconds."""
    began = time.process_time()
    points = [asdict(point) for point in sweep(name, values, seeds)]
    return points, time.process_time() - began


def theorem_result(theorem: TheoremFigure, scale: str, folder: Path) -> FigureResult | None:
    """Return a theorem's result; None unless it was measured with the file's settings."""
    try:
        result = json.loads((folder / _RESULT).read_text(encoding="utf-8"))
        if result["theory"] != theorem.theory.model_dump(mode="json"):
            return None
        sweeps = {
            name: [Point(point["value"], Row(**point["row"])) for point in points]
            for name, points in result["points"].items()
        }
        seconds = {name: float(result["seconds"][name]) for name in sweeps}
    except (OSError, ValueError, LookupError, TypeError):  # missing or broken
        return None
    return FigureResult(
        theorem,
        scale,
        _world(theorem.theory),
        sum(seconds.values()) / 60,
        [_finding(claim, sweeps, seconds, theorem.theory.seeds) for claim in theorem.claims],
        lambda folder, name: [_draw(sweeps, folder / f"{name}.png")],
    )


def _world(theory: TheorySection) -> str:
    """Return the number of runs, and the values of each sweep."""
    sweeps = (f"{_ALGORITHM.sub('', name)} {', '.join(map(str, values))}" for name, values in theory.sweeps.items())
    return f"{theory.seeds} runs at each value of {'; '.join(sweeps)}"


def _finding(
    claim: TheoremClaim, sweeps: Mapping[str, Sequence[Point]], result: Mapping[str, float], n: int
) -> Finding:
    name = _QUANTITIES[claim.quantity]
    allowed = Range(-math.inf, claim.value) if claim.relation == "at most" else Range(claim.value, math.inf)
    if claim.quantity == "slope":
        tested = t_test(*slope_with_error(sweeps[claim.sweeps[0]]), n - 1, allowed)
    else:
        tested = ratio_test(claim, [point.row for sweep in claim.sweeps for point in sweeps[sweep]], n, allowed)
    value = tested.effect
    assert value is not None
    is_exact = tested.low == tested.high
    interval = "" if is_exact else f" [{tested.low:.3g}, {tested.high:.3g}]"
    low, high = (None if math.isinf(bound) else bound for bound in allowed)
    return Finding(
        claim.name,
        claim.paper,
        f"{name}, {', '.join(claim.sweeps)}: {value:.3g}",
        f"{claim.relation} {claim.value:g}",
        quantity=name,
        values=dict.fromkeys(claim.sweeps, f"{value:.3g}") if len(claim.sweeps) == 1 else {},
        n=n,
        effect=Effect("value", value, tested.low, tested.high, (low, high), f"{value:.3g}{interval}"),
        method="exact: the runs have no noise" if is_exact else "t, over the runs",
        p=tested.p,
        is_for=tested.is_for,
        processor_seconds=round(sum(result[sweep] for sweep in claim.sweeps), 1),
    )


def ratio_test(claim: TheoremClaim, rows: Sequence[Row], n: int, allowed: Range) -> TestedEffect:
    """Test that all points' ratios of measured to bound are in a range.

    The effect is the most extreme ratio.
    """
    tests = [t_test(row.ratio, row.half_width / NORMAL_QUANTILE / row.bound, n - 1, allowed) for row in rows]
    ratios = [row.ratio for row in rows]
    extreme = ratios.index((max if claim.quantity == "largest_ratio" else min)(ratios))
    return replace(
        tests[extreme],
        p_for=max(one.p_for for one in tests),
        p_against=min(1.0, len(tests) * min(one.p_against for one in tests)),  # Bonferroni: any point can refute it
    )


@matplotlib.rc_context(STYLE)
def _draw(sweeps: dict[str, list[Point]], path: Path) -> Path:
    """Draw measured values with 95 % intervals, and bounds; a panel for each sweep."""
    columns = 3
    rows = -(-len(sweeps) // columns)
    figure = Figure(figsize=(WIDTH, 0.3 + 2.2 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    measured_colour, bound_colour = colours(("measured", "bound"))
    for axes, (name, points) in zip(panels, sweeps.items(), strict=False):
        tidy(axes)
        values = [point.value for point in points]
        axes.errorbar(
            values,
            [point.row.measured for point in points],
            [point.row.half_width for point in points],
            fmt="o-",
            color=measured_colour,
            markersize=4,
        )
        axes.plot(values, [point.row.bound for point in points], "s--", color=bound_colour, markersize=3.5)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        if 0 not in values:
            axes.set_xscale("log")
        axes.set_xticks(values, [f"{value:g}" for value in values])
        axes.minorticks_off()
        axes.set_title(_ALGORITHM.sub("", name), loc="left", color=GREY)
    for axes in panels[len(sweeps) :]:
        axes.set_axis_off()
    panels[0].set_ylabel("measured, bound (dashed)")
    return write_file(path, png(figure, DOTS_PER_INCH))
