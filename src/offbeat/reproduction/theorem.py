"""A figure that is a bound, measured on a small problem as one of the numbers in it grows."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter
from pydantic import Field, ValidationError, field_validator

from offbeat.config.section import Section
from offbeat.config.validation_errors import one_line
from offbeat.errors import OffbeatError, did_you_mean
from offbeat.report.export import write_file
from offbeat.report.plot_style import GREY, STYLE, WIDTH, colours, png, tidy
from offbeat.reproduction.outcome import DOTS_PER_INCH, Finding, Outcome, fingerprint_of
from offbeat.reproduction.sections import Line, ReproductionSection, Scale
from offbeat.theory.check.row import Row
from offbeat.theory.check.sweep import SWEEPS, Point, slope, sweep

Values = Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(strict=False, min_length=2)]
_RESULT = "points.json"


class TheorySection(Section):
    """``[theory]``: what is measured."""

    seeds: Annotated[int, Field(ge=2)]
    """Independent runs at each value."""
    sweeps: Annotated[dict[str, Values], Field(min_length=1)]
    """The values of each number that grows, by ``offbeat.theory.check.sweep``'s names."""

    @field_validator("sweeps")
    @classmethod
    def _check_known(cls, sweeps: dict[str, Values]) -> dict[str, Values]:
        for name, values in sweeps.items():
            if name not in SWEEPS:
                raise ValueError(did_you_mean(name, SWEEPS))
            if 0 in values and name != "fedbuff_staleness":
                raise ValueError(f"{name}: values must be 1 or more")
        return sweeps


class TheoremClaim(Section):
    """``[[claims]]``: one thing that a theorem says, as an inequality."""

    name: Line
    """What is claimed, in one line."""
    quantity: Literal["largest_ratio", "smallest_ratio", "slope"]
    """The largest or smallest of measured / bound; slope: p where what is measured goes as the number to the p."""
    of: str
    """The sweep."""
    relation: Literal["at most", "at least"]
    """How it is compared with value."""
    value: Annotated[float, Field(allow_inf_nan=False)]
    """A number."""
    paper: Line
    """The paper's number or words."""


class TheoremTables(Section):
    """A whole file."""

    reproduction: ReproductionSection
    scales: Annotated[dict[Literal["quick", "medium", "full"], Scale], Field(min_length=1)]
    theory: TheorySection
    claims: Annotated[tuple[TheoremClaim, ...], Field(strict=False, min_length=1)]


@dataclass(frozen=True)
class Theorem:
    """A theorem's file, read and checked.

    Attributes:
        name: Its folder and its own name.
        path: The file.
        section: Which theorem it is.
        scales: How large it can be run, by name; all the same.
        theory: What is measured.
        claims: What the paper claims.
    """

    name: str
    path: Path
    section: ReproductionSection
    scales: dict[str, Scale]
    theory: TheorySection
    claims: Sequence[TheoremClaim]

    def fingerprint(self, _: str) -> str:
        """Return what is another text for other settings or claims; it is the same at all scales."""
        return fingerprint_of([self.theory.model_dump(mode="json"), [one.model_dump() for one in self.claims]])


def load_theorem(path: Path, table: dict[str, Any]) -> Theorem:
    """Return a theorem from its file's table.

    Raises:
        OffbeatError: A key or value is wrong; one line names it.
    """
    try:
        found = TheoremTables.model_validate(table)
    except ValidationError as error:
        raise OffbeatError(f"{path}: {one_line(error, table)}") from None
    for claim in found.claims:
        if claim.of not in found.theory.sweeps:
            raise OffbeatError(f"{path}: claim {claim.name!r}: {did_you_mean(claim.of, found.theory.sweeps)}")
        if claim.quantity == "slope" and 0 in found.theory.sweeps[claim.of]:
            raise OffbeatError(f"{path}: claim {claim.name!r}: a slope needs values above 0")
    scales: dict[str, Scale] = {**found.scales}
    return Theorem(f"{path.parent.name}/{path.stem}", path, found.reproduction, scales, found.theory, found.claims)


def measure(theorem: Theorem, folder: Path) -> None:
    """Measure what a theorem's file asks for, and write it into ``folder``."""
    began = time.monotonic()
    theory = theorem.theory
    points = {
        name: [asdict(point) for point in sweep(name, values, theory.seeds)] for name, values in theory.sweeps.items()
    }
    result = {"theory": theory.model_dump(mode="json"), "points": points, "seconds": time.monotonic() - began}
    write_file(folder / _RESULT, json.dumps(result, indent=1).encode())


def theorem_outcome(theorem: Theorem, scale: str, folder: Path) -> Outcome | None:
    """Return what came of a theorem; None unless it was measured with the settings that the file has now."""
    try:
        result = json.loads((folder / _RESULT).read_text(encoding="utf-8"))
        if result["theory"] != theorem.theory.model_dump(mode="json"):
            return None
        sweeps = {
            name: [Point(point["value"], Row(**point["row"])) for point in points]
            for name, points in result["points"].items()
        }
    except (OSError, ValueError, LookupError, TypeError):  # it is not there, or broken
        return None
    return Outcome(
        theorem.name,
        theorem.path,
        theorem.section,
        scale,
        theorem.scales[scale],
        theorem.fingerprint(scale),
        f"{theorem.theory.seeds} runs at each value, by the file's rule",
        result["seconds"] / 60,
        [_finding(claim, sweeps[claim.of]) for claim in theorem.claims],
        lambda into, name: [_draw(sweeps, into / f"{name}.png")],
    )


def _finding(claim: TheoremClaim, points: Sequence[Point]) -> Finding:
    ratios = [point.row.ratio for point in points]
    value = {"largest_ratio": max(ratios), "smallest_ratio": min(ratios)}.get(claim.quantity)
    what = {"largest_ratio": "at most", "smallest_ratio": "at least", "slope": "goes as the power"}[claim.quantity]
    of_bound = "" if value is None else " of the bound"
    value = slope(points) if value is None else value
    holds = value <= claim.value if claim.relation == "at most" else value >= claim.value
    return Finding(
        claim.name,
        claim.paper,
        f"{what} {value:.3g}{of_bound}, {claim.of}",
        f"{claim.relation} {claim.value:g}",
        "holds" if holds else "does not hold",
    )


@matplotlib.rc_context(STYLE)
def _draw(sweeps: dict[str, list[Point]], path: Path) -> Path:
    """Draw what was measured, with its 95 % interval, and the bound, one panel a sweep."""
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
        axes.set_title(name.removeprefix("fedbuff_").removeprefix("async_comm_sgd_"), loc="left", color=GREY)
    for axes in panels[len(sweeps) :]:
        axes.set_axis_off()
    panels[0].set_ylabel("measured, bound (dashed)")
    return write_file(path, png(figure, DOTS_PER_INCH))
