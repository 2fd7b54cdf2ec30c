"""The study as a figure of ``offbeat papers``: its file, result and table."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from offbeat_studies.papers.displacement.branches import Study
from offbeat_studies.papers.displacement.claims import DisplacementClaim, finding, for_each_concurrency
from offbeat_studies.papers.displacement.drawing import draw
from offbeat_studies.papers.displacement.effects import best_displacement, log_ratio
from offbeat_studies.papers.displacement.points import DisplacementSection, Point, read_points
from offbeat_studies.papers.displacement.setting import Setting
from offbeat_studies.papers.figures.claim_effects import mean
from offbeat_studies.papers.figures.effect_text import ratio_words
from offbeat_studies.papers.figures.figure_result import FigureResult
from offbeat_studies.papers.figures.finding import Effect, Finding
from offbeat_studies.papers.figures.paper_figure import PaperFigure, fingerprint_of
from offbeat_studies.papers.figures.sections import FileTables, Scale
from offbeat_studies.papers.results.markdown import table


class DisplacementTables(FileTables):
    """The study's file."""

    displacement: DisplacementSection
    claims: Annotated[tuple[DisplacementClaim, ...], Field(strict=False, min_length=1)]


@dataclass(frozen=True)
class DisplacementFigure(PaperFigure):
    """The study, the same at all scales."""

    claims: Sequence[DisplacementClaim]
    displacement: DisplacementSection

    def fingerprint(self, scale: str) -> str:
        """Return a hash of the settings and claims, the same at all scales."""
        return fingerprint_of([self.displacement.model_dump(mode="json"), [one.inequality() for one in self.claims]])


def load_displacement(path: Path, tables: dict[str, Any]) -> DisplacementFigure:
    """Return the study from the tables of its file."""
    found = DisplacementTables.read(tables, path)
    scales: dict[str, Scale] = {**found.scales}
    name, section = f"{path.parent.name}/{path.stem}", found.reproduction
    claims = for_each_concurrency(found.claims, found.displacement.at_work)
    return DisplacementFigure(name, path, section, section, scales, claims, found.displacement)


def displacement_result(figure: DisplacementFigure, scale: str, folder: Path) -> FigureResult | None:
    """Return the study's result; None unless all its points have been run."""
    section = figure.displacement
    points = read_points(section, folder)
    if points is None:
        return None
    study = Study(section, points)
    findings = [finding(study, claim) for claim in figure.claims]
    world = section.world
    return FigureResult(
        figure,
        scale,
        f"Fashion-MNIST at half its resolution, softmax, {world.clients} clients, up to {world.budget:,} uploads",
        math.fsum(point.seconds for point in points) / 60,
        findings,
        lambda folder, name: [draw(study, folder / f"{name}.png")],
        lambda: "\n".join([*_answer(findings), _censored(study), "", *_table(study)]).rstrip(),
        _tuned(study),
        section.seeds,
    )


def _answer(findings: Sequence[Finding]) -> list[str]:
    """Return the span of the effects of each quantity, in lines of Markdown."""
    spans: dict[str, list[Effect]] = {}
    for one in findings:
        if one.effect is not None:
            spans.setdefault(one.quantity, []).append(one.effect)
    return [*(f"- {quantity}: {_span(effects)}" for quantity, effects in spans.items()), ""]


def _span(effects: Sequence[Effect]) -> str:
    if len(effects) == 1:
        return effects[0].text
    values = [effect.value for effect in effects if effect.value is not None]
    bounds = "" if len(values) == len(effects) else f", {len(effects) - len(values)} known within bounds only"
    return f"× {min(values):.2f} to {max(values):.2f} in {len(effects)} tests{bounds}" if values else bounds[2:]


def _censored(study: Study) -> str:
    """Return how many judging runs missed the target, by M, in a sentence."""
    counts: list[str] = []
    for at_work in study.section.at_work:
        points = [point for one in study.reference if one.at_work == at_work for point in study.right_branch(one)]
        missed = [point.uploads[seed] is None for point in points for seed in study.section.seeds]
        counts.append(f"{sum(missed)} of {len(missed)} at M = {at_work}")
    return f"Runs on the right branches that missed the target within the budget: {', '.join(counts)}."


def _table(study: Study) -> list[str]:
    """Return the table of FedBuff and FedFa, by K and M."""
    rows = [_row(study, setting) for setting in study.reference if setting.kind == "fedbuff"]
    header = ("K", "M", "τ_u", "best D, tuned (judged)", "uploads there, FedBuff", "FedFa")
    return table((*header, "FedFa / FedBuff at smaller D", "at the best D", "at √2 of it", "at 2 of it"), rows)


def _row(study: Study, ours: Setting) -> tuple[str, ...]:
    seeds = study.section.seeds
    other = replace(ours, kind="fedfa")
    best = study.best(ours)
    fresh = math.exp(math.fsum(math.log(best_displacement(study, ours, seed)) for seed in seeds) / len(seeds))
    pairs = list(zip(study.of(other), study.of(ours), strict=True))
    left = [pair for pair in pairs if pair[1].c < best]
    right = list(zip(study.right_branch(other), study.right_branch(ours), strict=True))
    ratios = [_mean_ratio(study, [pair]) for pair in right]
    return (
        str(ours.size),
        str(ours.at_work),
        f"{ours.delay:g}",
        f"{best:.3f} ({fresh:.3f})",
        *(_uploads(study, point) for pair in right[:1] for point in reversed(pair)),
        _mean_ratio(study, left),
        *ratios,
        *["–"] * (3 - len(ratios)),
    )


def _mean_ratio(study: Study, pairs: Sequence[tuple[Point, Point]]) -> str:
    """Return the geometric mean of ratios over the judging seeds, or its bounds."""
    if not pairs:
        return "–"
    bounds = mean([log_ratio(study, *pair, seed) for pair in pairs for seed in study.section.seeds])
    low, high = (math.exp(end) if math.isfinite(end) else None for end in bounds)
    return ratio_words((low if low == high else None, low, high)).partition(" [")[0] or "unknown"


def _uploads(study: Study, point: Point) -> str:
    logs = [study.log_uploads(point, seed) for seed in study.section.seeds]
    return f"{'' if all(log.low == log.high for log in logs) else '≥ '}{math.exp(mean(logs).low):.0f}"


def _tuned(study: Study) -> list[str]:
    """Return the best displacements by the tuning seeds, in lines of Markdown."""
    found = "; ".join(
        f"{setting.kind}, K = {setting.size}, M = {setting.at_work}, lr = {setting.lr:g}: c = {study.best(setting):.4f}"
        for setting in study.settings
        if not setting.is_bounded and setting.kind == "fedbuff"
    )
    seeds = study.section.tuning_seeds
    return [f"lowest mean log uploads on seeds {seeds[0]} to {seeds[-1]}, of FedBuff and FedFa together: {found}"]
