"""A figure's file: an experiment, what its paper claims of it, and at which scales it can be run."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from offbeat.errors import OffbeatError, did_you_mean
from offbeat.experiments import config
from offbeat.experiments.config import Experiment
from offbeat.experiments.config_error import one_line
from offbeat.experiments.section import Positive, Section

SCALES = ("quick", "medium", "full")

Line = Annotated[str, Field(min_length=1)]
Quantity = Literal[
    "final", "best", "tail", "swing", "seconds_to_target", "updates_to_target", "versions_to_target", "bytes_to_target"
]


class ReproductionSection(Section):
    """``[reproduction]``: which figure it is."""

    paper: Line
    """The paper, as people cite it."""
    figure: Line
    """The figure or table."""
    question: Line
    """What it is about, in one line."""
    over: Literal["seconds", "versions", "updates", "bytes"] = "seconds"
    """What our figure's horizontal axis is."""
    differs: Annotated[tuple[Line, ...], Field(strict=False)] = ()
    """In what this differs from the paper's experiment, at any scale."""


class Scale(Section):
    """``[scales.NAME]``: how large it is run."""

    minutes: Positive
    """About how long it takes on two cores, data at hand."""
    set: Annotated[tuple[Line, ...], Field(strict=False)] = ()
    """What is other than in the file, as for ``--set``."""
    device: Literal["cpu", "gpu"] = "cpu"
    """What it is meant for."""


class Claim(Section):
    """``[[claims]]``: one thing that the paper says, as an inequality.

    With m the quantity and r = factor · (the same quantity of ``than``, or ``value``): ``at most`` is m ≤ r +
    tolerance, ``at least`` m ≥ r − tolerance, ``close to`` |m − r| ≤ tolerance.
    """

    name: Line
    """What is claimed, in one line."""
    quantity: Quantity
    """final: the main measure at the end. tail: its mean over last_seconds. best. swing: its highest value minus its
    lowest over last_seconds. …_to_target: what it took to reach evaluate.target; infinite if that was never reached."""
    of: str
    """The algorithm's label."""
    relation: Literal["at most", "at least", "close to"]
    """See above."""
    than: str | None = None
    """Another label. Exactly one of this and value is needed."""
    value: float | None = None
    """A number."""
    factor: Positive = 1.0
    """Multiplies the other side."""
    tolerance: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Is allowed beyond it."""
    last_seconds: Positive | None = None
    """Virtual seconds at the end, of tail and swing."""
    paper: Line
    """The paper's number or words."""

    @model_validator(mode="after")
    def _check(self) -> "Claim":
        if (self.than is None) is (self.value is None):
            raise ValueError("set exactly one of than and value")
        if (self.last_seconds is None) is (self.quantity in ("tail", "swing")):
            raise ValueError("last_seconds belongs to tail and swing, and only to them")
        return self


class ReproductionTables(Section):
    """What a figure's file has beyond an experiment."""

    reproduction: ReproductionSection
    scales: Annotated[dict[Literal["quick", "medium", "full"], Scale], Field(min_length=1)]
    claims: Annotated[tuple[Claim, ...], Field(strict=False, min_length=1)]


@dataclass(frozen=True)
class Reproduction:
    """A figure's file, read and checked.

    Attributes:
        name: Its folder and its own name, such as ``fedlaavg/fig4e``.
        path: The file.
        section: Which figure it is.
        scales: How large it can be run, by name.
        claims: What the paper claims.
    """

    name: str
    path: Path
    section: ReproductionSection
    scales: dict[str, Scale]
    claims: Sequence[Claim]

    def experiment(self, scale: str) -> Experiment:
        """Return what is run at a scale.

        Raises:
            OffbeatError: There is no such scale, or what it sets is wrong.
        """
        if scale not in self.scales:
            raise OffbeatError(f"{self.name} has no scale {scale}: it has {', '.join(self.scales)}")
        return config.load(self.path, self.scales[scale].set)


def load(path: Path) -> Reproduction:
    """Read a figure's file, and check it at all its scales.

    Raises:
        OffbeatError: A key or value is wrong; one line names it.
    """
    table = config.read_table(path)
    extra: dict[str, Any] = {key: table[key] for key in config.REPRODUCTION_TABLES if key in table}
    try:
        found = ReproductionTables.model_validate(extra)
    except ValidationError as error:
        raise OffbeatError(f"{path}: {one_line(error, extra)}") from None
    name = f"{path.parent.name}/{path.stem}"
    scales: dict[str, Scale] = {**found.scales}
    made = Reproduction(name, path, found.reproduction, scales, found.claims)
    for scale in made.scales:
        experiment = made.experiment(scale)
        for claim in made.claims:
            _check_claim(claim, experiment, path)
    return made


def _check_claim(claim: Claim, experiment: Experiment, path: Path) -> None:
    for label in (claim.of, claim.than):
        if label is not None and label not in experiment.algorithms:
            raise OffbeatError(f"{path}: claim {claim.name!r}: {did_you_mean(label, experiment.algorithms)}")
    if claim.quantity.endswith("_to_target") and experiment.evaluate.target is None:
        raise OffbeatError(f"{path}: claim {claim.name!r}: {claim.quantity} needs evaluate.target")
