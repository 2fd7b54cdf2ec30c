"""What a figure's file has beyond an experiment: every key, its range and its default."""

from itertools import product
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from offbeat.config.section import Count, Positive, Section

SCALES = ("quick", "medium", "full")

Line = Annotated[str, Field(min_length=1)]
Quantity = Literal[
    "final",
    "best",
    "tail",
    "swing",
    "after_updates",
    "seconds_to_target",
    "updates_to_target",
    "versions_to_target",
    "bytes_to_target",
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
    crop: bool = False
    """Whether our figure ends where the first of its curves does."""
    table: bool = False
    """Whether all algorithms are listed, too: time and bytes to evaluate.target, accuracy, that of the worst client."""
    differs: Annotated[tuple[Line, ...], Field(strict=False)] = ()
    """In what this differs from the paper's experiment, at any scale."""


class Panel(Section):
    """``[panels.NAME]``: one of several figures in a file; the figure is called by the file's name and its own."""

    figure: Line
    """The panel, in place of reproduction.figure."""
    question: Line
    """What is its own, after reproduction.question."""
    set: Annotated[tuple[Line, ...], Field(strict=False)] = ()
    """What is other than in the file, as for ``--set``."""


class Scale(Section):
    """``[scales.NAME]``: how large it is run."""

    minutes: Positive
    """About how long it takes on two cores, data at hand."""
    set: Annotated[tuple[Line, ...], Field(strict=False)] = ()
    """What is other than in the file, as for ``--set``."""


class Tuning(Section):
    """``[tuning]``: what is tried for each algorithm before it is run with all seeds.

    The best point is the one whose main measure is best on average over a run, so both how fast it is and how far it
    gets count.
    """

    seed: Annotated[int, Field(ge=0)]
    """The seed that it is tried with, none of the others."""
    set: Annotated[tuple[Line, ...], Field(strict=False)] = ()
    """What is other when it is tried, as for ``--set``; for how long, most of all."""
    all: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(default_factory=dict)
    """The values that each key of ``[algorithms.LABEL]`` takes, of all algorithms, such as ``local.lr``."""
    own: dict[str, dict[str, Annotated[list[Any], Field(min_length=1)]]] = Field(default_factory=dict)
    """The same of one algorithm, in place of all."""

    def points(self, label: str) -> list[dict[str, Any]]:
        """Return what is tried for an algorithm: each combination of the values, by key."""
        grid = self.own.get(label, self.all)
        return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


class Claim(Section):
    """``[[claims]]``: one thing that the paper says, as an inequality.

    With m the quantity and r = factor · (the same quantity of ``than``, or ``value``): ``at most`` is m ≤ r +
    tolerance, ``at least`` m ≥ r − tolerance, ``close to`` |m − r| ≤ tolerance. With ``less`` and ``than_less`` both
    are differences.
    """

    name: Line
    """What is claimed, in one line."""
    quantity: Quantity
    """final: the measure at the end. tail: its mean over last_seconds. best. swing: its highest value minus its lowest
    over last_seconds. after_updates: its mean between 0.9 and 1.0 times as many counted updates; if it was not measured
    there, on the line from the measurement before to the one after. …_to_target: what it took to reach evaluate.target;
    infinite if that was never reached."""
    measure: str | None = None
    """Which one: loss, or a metric's name; the main one if it is left out."""
    of: str
    """The algorithm's label."""
    less: str | None = None
    """A label whose quantity is taken from that of ``of``."""
    relation: Literal["at most", "at least", "close to"]
    """See above."""
    than: str | None = None
    """Another label. Exactly one of this and value is needed."""
    than_panel: str | None = None
    """The panel that than is of, one above those that the claim is of; the same if it is left out."""
    than_less: str | None = None
    """A label whose quantity is taken from that of than, in the same panel."""
    value: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """A number."""
    factor: Positive = 1.0
    """Multiplies the other side."""
    tolerance: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Is allowed beyond it."""
    last_seconds: Positive | None = None
    """Virtual seconds at the end, of tail and swing."""
    updates: Count | None = None
    """Counted updates, of after_updates."""
    panels: Annotated[tuple[str, ...] | None, Field(strict=False, min_length=1)] = None
    """Those that it is claimed of; all if it is left out, all below than_panel if that is set."""
    paper: Line
    """The paper's number or words."""

    @model_validator(mode="after")
    def _check(self) -> "Claim":
        if (self.than is None) is (self.value is None):
            raise ValueError("set exactly one of than and value")
        if self.than_panel is not None and self.than is None:
            raise ValueError("than_panel needs than")
        if self.than is not None and (self.less is None) is not (self.than_less is None):
            raise ValueError("set both less and than_less, or neither: a difference is compared with another")
        if self.than_less is not None and self.than is None:
            raise ValueError("than_less needs than")
        if (self.last_seconds is None) is (self.quantity in ("tail", "swing")):
            raise ValueError("last_seconds belongs to tail and swing, and only to them")
        if (self.updates is None) is (self.quantity == "after_updates"):
            raise ValueError("updates belongs to after_updates, and only to it")
        if self.measure is not None and self.quantity.endswith("_to_target"):
            raise ValueError("evaluate.target is one of the main measure: leave measure out")
        if self.less is not None and self.quantity.endswith("_to_target"):
            raise ValueError("less is for what every run has, and a target may never be reached")
        return self
