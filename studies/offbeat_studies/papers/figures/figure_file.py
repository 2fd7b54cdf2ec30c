"""A figure's file: an experiment with panels, scales, tuning and claims."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from offbeat_core.errors import OffbeatError, did_you_mean
from offbeat_core.files import read_table
from pydantic import Field

from offbeat.config import experiment_file, set_option
from offbeat.config.experiment_file import Experiment
from offbeat.sweeps.trials import at_point, trials_experiment
from offbeat_studies.papers.figures.consistency import check_claim, check_compared, check_panels, check_tuning
from offbeat_studies.papers.figures.paper_figure import PaperFigure, fingerprint_of
from offbeat_studies.papers.figures.sections import Claim, FileTables, Panel, Scale, Tuning


class FigureTables(FileTables):
    """The tables that a figure's file has beyond an experiment."""

    panels: dict[Annotated[str, Field(pattern=r"^[\w-]+$")], Panel] = Field(default_factory=dict)
    tuning: Tuning | None = None
    claims: Annotated[tuple[Claim, ...], Field(strict=False, min_length=1)]


@dataclass(frozen=True)
class ComparisonFigure(PaperFigure):
    """A figure that compares runs of algorithms."""

    claims: Sequence[Claim]
    changes: Sequence[str]  # the panel's settings, as for --set
    tuning: Tuning | None = None
    # The panels that claims compare this one with, by the panel's name in the file.
    compared: Mapping[str, "ComparisonFigure"] = field(default_factory=dict[str, "ComparisonFigure"])
    without: Sequence[str] = ()  # labels of the file's algorithms that the panel leaves out

    def experiment(
        self, scale: str, tuned: Mapping[str, Mapping[str, Any]] | None = None, seeds: int | None = None
    ) -> Experiment:
        """Return the experiment of a scale, with the tuned values of each label, by key.

        ``seeds`` are how many of the file's seeds it has; all by default.
        """
        table = self._table(scale)
        if seeds is not None and "seeds" in table:
            table["seeds"] = table["seeds"][:seeds]
        for label, point in (tuned or {}).items():
            table["algorithms"][label] = at_point(table, label, point)
        return experiment_file.experiment_of(table, self.path)

    def tuning_experiment(self, scale: str) -> Experiment:
        """Return the tuning's experiment: each algorithm at each of its points."""
        assert self.tuning is not None
        table = self._table(scale, self.tuning.set)
        points = {label: dict(enumerate(self.tuning.points(label))) for label in table["algorithms"]}
        return trials_experiment(table, points, self.path, {"seeds": [self.tuning.seed]})

    def fingerprint(self, scale: str) -> str:
        """Return a hash of the settings and claims; texts and seeds do not count."""
        without = {experiment_file.TOOL_TABLE, "seeds"}
        tables = [
            {key: value for key, value in one._table(scale).items() if key not in without}
            for one in (self, *self.compared.values())
        ]
        # Without defaults: a new key changes only the figures that set it.
        tuning = self.tuning and self.tuning.model_dump(exclude_defaults=True)
        return fingerprint_of([*tables, tuning, [claim.inequality() for claim in self.claims]])

    def _table(self, scale: str, more: Sequence[str] = ()) -> dict[str, Any]:
        if scale not in self.scales:
            raise OffbeatError(f"{self.name}: no scale {scale}; choose from {', '.join(self.scales)}")
        table = set_option.read_changed(self.path, (*self.changes, *self.scales[scale].set, *more))
        for label in self.without:
            if label not in table["algorithms"]:
                raise OffbeatError(f"{self.path}: {self.name}: without: {did_you_mean(label, table['algorithms'])}")
            del table["algorithms"][label]
        return table


def own_tables(table: dict[str, Any]) -> dict[str, Any]:
    """Return ``[tool.papers]`` of a file, empty without one."""
    tools = table.get(experiment_file.TOOL_TABLE, {})
    found = tools.get("papers", {}) if isinstance(tools, dict) else {}
    return found if isinstance(found, dict) else {}


def load(path: Path) -> list[ComparisonFigure]:
    """Read the figures of a file, one for each panel, and check all their scales."""
    tables = FigureTables.read(own_tables(read_table(path)), path)
    check_panels(tables.claims, list(tables.panels), path)
    figures: dict[str | None, ComparisonFigure] = {}
    for panel in list(tables.panels) or [None]:
        figures[panel] = _figure(tables, panel, path, {name: one for name, one in figures.items() if name is not None})
    for figure in figures.values():
        for scale in figure.scales:
            _check(figure, scale, path)
    return list(figures.values())


def _check(figure: ComparisonFigure, scale: str, path: Path) -> None:
    experiment = figure.experiment(scale)
    is_classified = experiment.metrics[:1] == ("accuracy",) and experiment.model.loss == "cross_entropy"
    if figure.section.table and not (is_classified and experiment.evaluate.target is not None):
        raise OffbeatError(f"{path}: reproduction.table needs classes, the metric accuracy and evaluate.target")
    if figure.tuning is not None:
        check_tuning(figure.tuning, experiment, figure.without, path)
        figure.tuning_experiment(scale)
    for claim in figure.claims:
        check_claim(claim, experiment, path)
        if claim.than_panel:
            check_compared(claim, experiment, figure.compared[claim.than_panel].experiment(scale), path)


def _figure(
    tables: FigureTables, panel: str | None, path: Path, above: Mapping[str, ComparisonFigure]
) -> ComparisonFigure:
    scales: dict[str, Scale] = {**tables.scales}
    file_name, file_section = f"{path.parent.name}/{path.stem}", tables.reproduction
    if panel is None:
        return ComparisonFigure(file_name, path, file_section, file_section, scales, tables.claims, (), tables.tuning)
    own = tables.panels[panel]
    section = file_section.model_copy(
        update={
            "figure": own.figure,
            "question": f"{file_section.question} {own.question}",
            "published": {**file_section.published, **own.published},
        }
    )
    claims = [
        claim
        for claim in tables.claims
        if (claim.panels is None or panel in claim.panels) and (claim.than_panel is None or claim.than_panel in above)
    ]
    if not claims:
        raise OffbeatError(f"{path}: {file_name}{panel} has no claim: add one, or remove the panel")
    compared = {claim.than_panel: above[claim.than_panel] for claim in claims if claim.than_panel}
    return ComparisonFigure(
        f"{file_name}{panel}",
        path,
        section,
        file_section,
        scales,
        claims,
        own.set,
        tables.tuning,
        compared,
        own.without,
    )
