"""Checks between the tables of a figure's file."""

from collections.abc import Sequence
from pathlib import Path

from offbeat_core.errors import OffbeatError, did_you_mean

from offbeat.config.experiment_file import Experiment
from offbeat.config.experiment_sections import metric_name
from offbeat.report.metrics import LOSS
from offbeat_studies.papers.figures.sections import Claim, Tuning


def check_panels(claims: Sequence[Claim], panels: Sequence[str], path: Path) -> None:
    """Check that claims' panels exist, each ``than_panel`` above the others."""
    for claim in claims:
        start = f"{path}: claim {claim.name!r}: "
        for key, names in (("panels", claim.panels or ()), ("than_panel", (claim.than_panel,))):
            for name in names:
                if name is not None and name not in panels:
                    reason = did_you_mean(name, panels) if panels else "the file has no [panels]"
                    raise OffbeatError(f"{start}{key}: {reason}")
        if claim.than_panel is not None:
            below = panels[panels.index(claim.than_panel) + 1 :]
            if not below or not set(claim.panels or ()) <= set(below):
                raise OffbeatError(
                    f"{start}than_panel = {claim.than_panel!r} must be above the panels that are compared with it: "
                    "change their order"
                )


def check_tuning(tuning: Tuning, experiment: Experiment, without: Sequence[str], path: Path) -> None:
    """Check that a tuning has known algorithms, equally many points, and its own seed."""
    for label in tuning.own:
        if label not in (known := [*experiment.algorithms, *without]):
            raise OffbeatError(f"{path}: tuning.own: {did_you_mean(label, known)}")
    if tuning.seed in experiment.seeds:
        raise OffbeatError(f"{path}: tuning.seed = {tuning.seed} is one of the seeds: choose another")
    numbers = {label: len(tuning.points(label)) for label in experiment.algorithms}
    if len(set(numbers.values())) > 1:
        raise OffbeatError(f"{path}: tuning: each algorithm needs the same number of points, got {numbers}")


def check_claim(claim: Claim, experiment: Experiment, path: Path) -> None:
    """Check that an experiment has a claim's algorithms, target and measure."""
    start = f"{path}: claim {claim.name!r}: "
    compared = () if claim.than_panel else (claim.than, claim.than_less, *(claim.than_mean or ()))
    for label in (claim.of, claim.less, *compared):
        if label is not None and label not in experiment.algorithms:
            raise OffbeatError(f"{start}{did_you_mean(label, experiment.algorithms)}")
    if claim.quantity.endswith("_to_target") and experiment.evaluate.target is None:
        raise OffbeatError(f"{start}{claim.quantity} needs evaluate.target")
    known = [*map(metric_name, experiment.metrics), LOSS]
    if claim.measure is not None and claim.measure not in known:
        raise OffbeatError(f"{start}measure: {did_you_mean(claim.measure, known)}")


def check_compared(claim: Claim, experiment: Experiment, other: Experiment, path: Path) -> None:
    """Check that ``than_panel`` has a claim's algorithms and the same measures."""
    start = f"{path}: claim {claim.name!r}: than_panel = {claim.than_panel!r} "
    for label in (claim.than, claim.than_less):
        if label is not None and label not in other.algorithms:
            raise OffbeatError(f"{start}has no {label}: {did_you_mean(label, other.algorithms)}")
    ours, theirs = ((one.seeds, one.metrics, one.better, one.evaluate.target) for one in (experiment, other))
    if ours != theirs:
        raise OffbeatError(f"{start}needs the same seeds, evaluate.metrics, better and target")
