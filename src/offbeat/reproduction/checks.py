"""What must fit together in a figure's file."""

from collections.abc import Sequence
from pathlib import Path

from offbeat.config.experiment_file import Experiment
from offbeat.config.experiment_sections import metric_name
from offbeat.errors import OffbeatError, did_you_mean
from offbeat.report.metrics import LOSS
from offbeat.reproduction.sections import Claim, Tuning


def check_panels(claims: Sequence[Claim], panels: Sequence[str], path: Path) -> None:
    """Check that claims name panels that there are, and compare them with ones that stand above them."""
    for claim in claims:
        for key, names in (("panels", claim.panels or ()), ("than_panel", (claim.than_panel,))):
            for name in names:
                if name is not None and name not in panels:
                    which = did_you_mean(name, panels) if panels else "the file has no [panels]"
                    raise OffbeatError(f"{path}: claim {claim.name!r}: {key}: {which}")
        if claim.than_panel is not None:
            below = panels[panels.index(claim.than_panel) + 1 :]
            if not below or not set(claim.panels or ()) <= set(below):
                raise OffbeatError(
                    f"{path}: claim {claim.name!r}: than_panel = {claim.than_panel!r} must stand above the panels that "
                    "it is compared with: change their order"
                )


def check_tuning(tuning: Tuning, experiment: Experiment, path: Path) -> None:
    """Check that tuning is about algorithms that there are, as often for each, and on a seed of its own."""
    for label in tuning.own:
        if label not in experiment.algorithms:
            raise OffbeatError(f"{path}: tuning.own: {did_you_mean(label, experiment.algorithms)}")
    if tuning.seed in experiment.seeds:
        raise OffbeatError(f"{path}: tuning.seed = {tuning.seed} is one of the seeds: take another")
    numbers = {label: len(tuning.points(label)) for label in experiment.algorithms}
    if len(set(numbers.values())) > 1:
        raise OffbeatError(f"{path}: tuning: each algorithm must be tried as often, got {numbers}")


def check_claim(claim: Claim, experiment: Experiment, path: Path) -> None:
    """Check that an experiment has what a claim is about."""
    for label in (claim.of, claim.less, *(() if claim.than_panel else (claim.than, claim.than_less))):
        if label is not None and label not in experiment.algorithms:
            raise OffbeatError(f"{path}: claim {claim.name!r}: {did_you_mean(label, experiment.algorithms)}")
    if claim.quantity.endswith("_to_target") and experiment.evaluate.target is None:
        raise OffbeatError(f"{path}: claim {claim.name!r}: {claim.quantity} needs evaluate.target")
    known = [*map(metric_name, experiment.metrics), LOSS]
    if claim.measure is not None and claim.measure not in known:
        raise OffbeatError(f"{path}: claim {claim.name!r}: measure: {did_you_mean(claim.measure, known)}")


def check_beside(claim: Claim, experiment: Experiment, other: Experiment, path: Path) -> None:
    """Check that another panel's experiment has what a claim compares with, measured alike."""
    where = f"{path}: claim {claim.name!r}: than_panel = {claim.than_panel!r}"
    for label in (claim.than, claim.than_less):
        if label is not None and label not in other.algorithms:
            raise OffbeatError(f"{where} has no {label}: {did_you_mean(label, other.algorithms)}")
    alike = [(one.seeds, one.metrics, one.better, one.evaluate.target) for one in (experiment, other)]
    if alike[0] != alike[1]:
        raise OffbeatError(f"{where} needs the same seeds, evaluate.metrics, better and target")
