"""A figure's file: an experiment, its panels, what its paper claims of it, and at which scales it can be run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from offbeat.config import experiment_file
from offbeat.config.experiment_file import Experiment
from offbeat.config.section import Section
from offbeat.config.validation_errors import one_line
from offbeat.errors import OffbeatError
from offbeat.reproduction.checks import check_beside, check_claim, check_panels, check_tuning
from offbeat.reproduction.outcome import fingerprint_of
from offbeat.reproduction.sections import Claim, Panel, ReproductionSection, Scale, Tuning


class ReproductionTables(Section):
    """What a figure's file has beyond an experiment."""

    reproduction: ReproductionSection
    panels: dict[Annotated[str, Field(pattern=r"^[\w-]+$")], Panel] = Field(default_factory=dict)
    scales: Annotated[dict[Literal["quick", "medium", "full"], Scale], Field(min_length=1)]
    tuning: Tuning | None = None
    claims: Annotated[tuple[Claim, ...], Field(strict=False, min_length=1)]


@dataclass(frozen=True)
class Reproduction:
    """A figure, read from a file and checked.

    Attributes:
        name: The file's folder and name, and the panel's, such as ``fedlaavg/fig4e``.
        path: The file.
        section: Which figure it is.
        changes: The panel's.
        scales: How large it can be run, by name.
        claims: What the paper claims of it.
        tuning: What is tried before; None for nothing.
        beside: The panels that claims compare it with, by the panel's own name.
    """

    name: str
    path: Path
    section: ReproductionSection
    changes: Sequence[str]
    scales: dict[str, Scale]
    claims: Sequence[Claim]
    tuning: Tuning | None = None
    beside: Mapping[str, "Reproduction"] = field(default_factory=dict[str, "Reproduction"])

    def experiment(self, scale: str, chosen: Mapping[str, Mapping[str, Any]] | None = None) -> Experiment:
        """Return what is run at a scale.

        Args:
            scale: Its name.
            chosen: What tuning has changed, for each label by key.

        Raises:
            OffbeatError: There is no such scale, or what it sets is wrong.
        """
        table = self._table(scale)
        for label, point in (chosen or {}).items():
            table["algorithms"][label] = _with(table["algorithms"][label], point)
        return experiment_file.experiment_of(table, self.path)

    def tries(self, scale: str) -> Experiment:
        """Return what tuning runs at a scale: each algorithm with each of its points, on tuning's own seed."""
        assert self.tuning is not None
        table = self._table(scale, self.tuning.set)
        algorithms = {
            f"{label} {number}": {"algorithm": label, **_with(its, point)}
            for label, its in table["algorithms"].items()
            for number, point in enumerate(self.tuning.points(label))
        }
        return experiment_file.experiment_of(
            {**table, "algorithms": algorithms, "seeds": [self.tuning.seed]}, self.path
        )

    def fingerprint(self, scale: str) -> str:
        """Return what is another text for other settings or claims; what the file says in words has no part in it."""
        tables = [
            {key: value for key, value in one._table(scale).items() if key not in experiment_file.REPRODUCTION_TABLES}
            for one in (self, *self.beside.values())
        ]
        # Without what is left out, a key that is new changes the texts of those figures only that have it.
        tuning = self.tuning and self.tuning.model_dump(exclude_defaults=True)
        return fingerprint_of([*tables, tuning, [claim.model_dump(exclude_defaults=True) for claim in self.claims]])

    def _table(self, scale: str, more: Sequence[str] = ()) -> dict[str, Any]:
        if scale not in self.scales:
            raise OffbeatError(f"{self.name} has no scale {scale}: it has {', '.join(self.scales)}")
        return experiment_file.read_table(self.path, (*self.changes, *self.scales[scale].set, *more))


def load(path: Path) -> list[Reproduction]:
    """Read the figures of a file, one a panel, and check them at all their scales.

    Raises:
        OffbeatError: A key or value is wrong; one line names it.
    """
    table = experiment_file.read_table(path)
    extra: dict[str, Any] = {key: table[key] for key in experiment_file.REPRODUCTION_TABLES if key in table}
    try:
        found = ReproductionTables.model_validate(extra)
    except ValidationError as error:
        raise OffbeatError(f"{path}: {one_line(error, extra)}") from None
    check_panels(found.claims, list(found.panels), path)
    made: list[Reproduction] = []
    above: dict[str, Reproduction] = {}
    for panel in list(found.panels) or [None]:
        made.append(_reproduction(found, panel, path, above))
        if panel is not None:
            above[panel] = made[-1]
    for one in made:
        for scale in one.scales:
            experiment = one.experiment(scale)
            is_classified = experiment.metrics[:1] == ("accuracy",) and experiment.model.loss == "cross_entropy"
            if one.section.table and not (is_classified and experiment.evaluate.target is not None):
                raise OffbeatError(f"{path}: reproduction.table needs classes, the metric accuracy and evaluate.target")
            if one.tuning is not None:
                check_tuning(one.tuning, experiment, path)
                one.tries(scale)
            for claim in one.claims:
                check_claim(claim, experiment, path)
                if claim.than_panel:
                    check_beside(claim, experiment, one.beside[claim.than_panel].experiment(scale), path)
    return made


def _reproduction(
    tables: ReproductionTables, name: str | None, path: Path, above: Mapping[str, Reproduction]
) -> Reproduction:
    scales: dict[str, Scale] = {**tables.scales}
    whole = f"{path.parent.name}/{path.stem}"
    if name is None:
        return Reproduction(whole, path, tables.reproduction, (), scales, tables.claims, tables.tuning)
    panel, section = tables.panels[name], tables.reproduction
    section = section.model_copy(update={"figure": panel.figure, "question": f"{section.question} {panel.question}"})
    claims = [
        claim
        for claim in tables.claims
        if (claim.panels is None or name in claim.panels) and (claim.than_panel is None or claim.than_panel in above)
    ]
    if not claims:
        raise OffbeatError(f"{path}: nothing is claimed of {whole}{name}: add a claim, or remove the panel")
    beside = {claim.than_panel: above[claim.than_panel] for claim in claims if claim.than_panel}
    return Reproduction(f"{whole}{name}", path, section, panel.set, scales, claims, tables.tuning, beside)


def _with(table: Mapping[str, Any], point: Mapping[str, Any]) -> dict[str, Any]:
    """Return an algorithm's table with other values; a key may be one of ``local``, such as ``local.lr``."""
    changed = dict(table)
    for key, value in point.items():
        section, dot, name = key.partition(".")
        changed[section] = {**changed.get(section, {}), name: value} if dot else value
    return changed
