"""A figure's file: an experiment, its panels, what its paper claims of it, and at which scales it can be run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from offbeat.errors import OffbeatError, did_you_mean
from offbeat.experiments import config
from offbeat.experiments.config import Experiment
from offbeat.experiments.config_error import one_line
from offbeat.experiments.measure import LOSS
from offbeat.experiments.section import Section
from offbeat.experiments.sections import metric_name
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
        beside: The panels that claims compare it with, by name.
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
        return config.experiment_of(table, self.path)

    def tries(self, scale: str) -> Experiment:
        """Return what tuning runs at a scale: each algorithm with each of its points, on tuning's own seed."""
        assert self.tuning is not None
        table = self._table(scale, self.tuning.set)
        algorithms = {
            f"{label} {number}": {"algorithm": label, **_with(its, point)}
            for label, its in table["algorithms"].items()
            for number, point in enumerate(self.tuning.points(label))
        }
        return config.experiment_of({**table, "algorithms": algorithms, "seeds": [self.tuning.seed]}, self.path)

    def fingerprint(self, scale: str) -> str:
        """Return what is another text for other settings or claims; what the file says in words has no part in it."""
        tables = [
            {key: value for key, value in one._table(scale).items() if key not in config.REPRODUCTION_TABLES}
            for one in (self, *self.beside.values())
        ]
        # Without what is left out, a key that is new changes the texts of those figures only that have it.
        tuning = self.tuning and self.tuning.model_dump(exclude_defaults=True)
        return fingerprint_of([*tables, tuning, [claim.model_dump(exclude_defaults=True) for claim in self.claims]])

    def _table(self, scale: str, more: Sequence[str] = ()) -> dict[str, Any]:
        if scale not in self.scales:
            raise OffbeatError(f"{self.name} has no scale {scale}: it has {', '.join(self.scales)}")
        return config.read_table(self.path, (*self.changes, *self.scales[scale].set, *more))


def load(path: Path) -> list[Reproduction]:
    """Read the figures of a file, one a panel, and check them at all their scales.

    Raises:
        OffbeatError: A key or value is wrong; one line names it.
    """
    table = config.read_table(path)
    extra: dict[str, Any] = {key: table[key] for key in config.REPRODUCTION_TABLES if key in table}
    try:
        found = ReproductionTables.model_validate(extra)
    except ValidationError as error:
        raise OffbeatError(f"{path}: {one_line(error, extra)}") from None
    for claim in found.claims:
        for panel in (*(claim.panels or ()), claim.than_panel):
            if panel is not None and panel not in found.panels:
                raise OffbeatError(f"{path}: claim {claim.name!r}: panels: {did_you_mean(panel, found.panels)}")
    names = list(found.panels) or [None]
    made = [_reproduction(found, panel, path) for panel in names]
    by_panel = dict(zip(found.panels, made, strict=False))
    made = [
        replace(one, beside={claim.than_panel: by_panel[claim.than_panel] for claim in one.claims if claim.than_panel})
        for one in made
    ]
    for one in made:
        if not one.claims:
            raise OffbeatError(f"{path}: nothing is claimed of {one.name}")
    for one in made:
        for scale in one.scales:
            experiment = one.experiment(scale)
            is_classified = experiment.metrics[:1] == ("accuracy",) and experiment.model.loss == "cross_entropy"
            if one.section.table and not (is_classified and experiment.evaluate.target is not None):
                raise OffbeatError(f"{path}: reproduction.table needs classes, the metric accuracy and evaluate.target")
            if one.tuning is not None:
                _check_tuning(one.tuning, experiment, path)
                one.tries(scale)
            for claim in one.claims:
                than = one.beside[claim.than_panel].experiment(scale) if claim.than_panel else experiment
                _check_claim(claim, experiment, than, path)
    return made


def _reproduction(tables: ReproductionTables, name: str | None, path: Path) -> Reproduction:
    scales: dict[str, Scale] = {**tables.scales}
    whole = f"{path.parent.name}/{path.stem}"
    if name is None:
        return Reproduction(whole, path, tables.reproduction, (), scales, tables.claims, tables.tuning)
    panel, section = tables.panels[name], tables.reproduction
    section = section.model_copy(update={"figure": panel.figure, "question": f"{section.question} {panel.question}"})
    claims = [
        claim
        for claim in tables.claims
        if (claim.panels is None or name in claim.panels)
        and claim.than_panel != name  # nothing is said of it and itself
    ]
    return Reproduction(f"{whole}{name}", path, section, panel.set, scales, claims, tables.tuning)


def _with(table: Mapping[str, Any], point: Mapping[str, Any]) -> dict[str, Any]:
    """Return an algorithm's table with other values; a key may be one of ``local``, such as ``local.lr``."""
    changed = dict(table)
    for key, value in point.items():
        section, dot, name = key.partition(".")
        changed[section] = {**changed.get(section, {}), name: value} if dot else value
    return changed


def _check_tuning(tuning: Tuning, experiment: Experiment, path: Path) -> None:
    for label in tuning.own:
        if label not in experiment.algorithms:
            raise OffbeatError(f"{path}: tuning.own: {did_you_mean(label, experiment.algorithms)}")
    if tuning.seed in experiment.seeds:
        raise OffbeatError(f"{path}: tuning.seed = {tuning.seed} is one of the seeds: take another")
    numbers = {label: len(tuning.points(label)) for label in experiment.algorithms}
    if len(set(numbers.values())) > 1:
        raise OffbeatError(f"{path}: tuning: each algorithm must be tried as often, got {numbers}")


def _check_claim(claim: Claim, experiment: Experiment, than: Experiment, path: Path) -> None:
    """Check a claim on one of an experiment's algorithms and one of another's, or the same experiment's."""
    for label, its in ((claim.of, experiment), (claim.than, than)):
        if label is not None and label not in its.algorithms:
            raise OffbeatError(f"{path}: claim {claim.name!r}: {did_you_mean(label, its.algorithms)}")
    if claim.quantity.endswith("_to_target") and experiment.evaluate.target is None:
        raise OffbeatError(f"{path}: claim {claim.name!r}: {claim.quantity} needs evaluate.target")
    alike = [(one.seeds, one.metrics, one.better, one.evaluate.target) for one in (experiment, than)]
    if alike[0] != alike[1]:
        raise OffbeatError(f"{path}: claim {claim.name!r}: panels need the same seeds, metrics and target")
    known = [*map(metric_name, experiment.metrics), LOSS]
    if claim.measure is not None and claim.measure not in known:
        raise OffbeatError(f"{path}: claim {claim.name!r}: measure: {did_you_mean(claim.measure, known)}")
