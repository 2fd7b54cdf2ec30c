"""The tables of a figure's file beyond an experiment: keys, ranges and defaults."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from offbeat_core.tables.section import Count, Positive, Section
from offbeat_core.tables.validation_errors import mistakes, user_error
from pydantic import Field, ValidationError, model_validator

from offbeat.sweeps.search_space import Choices, all_points

Line = Annotated[str, Field(min_length=1)]
Published = dict[Line, dict[str, Line]]
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
    "bytes_up_to_target",
]


Cost = Literal["seconds", "versions", "updates", "bytes"]


class ReproductionSection(Section):
    """``[reproduction]``: the paper, the figure and its question."""

    paper: Line
    """The paper, as people cite it."""
    figure: Line
    """The figure or table."""
    question: Line
    """The question that it answers, in one line."""
    over: Cost = "seconds"
    """The horizontal axis of our figure."""
    also_over: Annotated[tuple[Cost, ...], Field(strict=False)] = ()
    """More horizontal axes: the main measure is drawn over each, too."""
    crop: bool = False
    """Whether our figure ends where its shortest curve ends."""
    table: bool = False
    """Whether the page also has a table of all algorithms: time and uploaded bytes to evaluate.target, final accuracy,
    accuracy for the worst client."""
    differs: Annotated[tuple[Line, ...], Field(strict=False)] = ()
    """The differences from the paper's experiment, at any scale."""
    published: Published = Field(default_factory=dict)
    """The paper's own numbers, by quantity and algorithm's label; they stand below ours."""
    chance: Annotated[float, Field(gt=0, lt=1)] | None = None
    """The accuracy of guessing. A claim is not tested where all that it compares stay near it."""


class Panel(Section):
    """``[panels.NAME]``: one of several figures in a file, named after it and NAME."""

    figure: Line
    """The panel, in place of reproduction.figure."""
    question: Line
    """The panel's question, after reproduction.question."""
    set: Annotated[tuple[Line, ...], Field(strict=False)] = ()
    """Changes to the file, as for ``--set``."""
    without: Annotated[tuple[Line, ...], Field(strict=False)] = ()
    """Labels of algorithms that the panel does not run, for instance since another panel's runs serve for it."""
    published: Published = Field(default_factory=dict)
    """As in reproduction, for this panel."""


class Scale(Section):
    """``[scales.NAME]``: a size of the experiment."""

    minutes: Positive
    """The approximate duration on two cores with three seeds, without the download of data."""
    evidence: Literal["paper", "theorem", "proxy"] = "proxy"
    """paper: model, data, clients and rounds are the paper's, as far as it gives them. theorem: the paper's theorem, on
    problems of ours that meet its assumptions. proxy: the setting is smaller or another."""
    set: Annotated[tuple[Line, ...], Field(strict=False)] = ()
    """Changes to the file, as for ``--set``."""
    notes: Annotated[tuple[Line, ...], Field(strict=False)] = ()
    """What is as in the paper at this scale and what is not, after reproduction.differs."""


class FileTables(Section):
    """The tables of a file that figures and theorems share."""

    reproduction: ReproductionSection
    scales: Annotated[dict[Literal["quick", "medium", "full"], Scale], Field(min_length=1)]

    @classmethod
    def read(cls, table: dict[str, Any], path: Path) -> Self:
        """Check the tables of the file ``path``; an error is one line."""
        try:
            return cls.model_validate(table)
        except ValidationError as error:
            raise user_error([f"{path}: {line}" for line in mistakes(error, table)]) from None


class Tuning(Section):
    """``[tuning]``: hyper-parameters to try before the runs with all seeds.

    They are tried for each algorithm. The best point has the best main measure on average over its run, so that both
    speed and the level reached count.
    """

    seed: Annotated[int, Field(ge=0)]
    """The seed of the tuning runs, different from all seeds of the experiment."""
    set: Annotated[tuple[Line, ...], Field(strict=False)] = ()
    """Changes to the file for the tuning runs, as for ``--set``; usually a shorter duration."""
    all: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(default_factory=dict)
    """The values of each key of ``[algorithms.LABEL]``, such as ``local.lr``, for all algorithms."""
    own: dict[str, dict[str, Annotated[list[Any], Field(min_length=1)]]] = Field(default_factory=dict)
    """The same for one algorithm, in place of ``all``."""

    def points(self, label: str) -> list[dict[str, Any]]:
        """Return the points that are tried for an algorithm: all combinations, by key."""
        grid = self.own.get(label, self.all)
        return all_points({key: Choices(tuple(values)) for key, values in grid.items()})


class Statement(Section):
    """The texts of a claim."""

    name: Line
    """The claim, in one line."""
    paper: Line
    """The paper's number or words."""
    ours: bool = False
    """Whether no paper claims it."""
    statement: str = ""
    """The statement of the paper that it tests, where several claims test the same one; its name if left out."""
    headline: bool = False
    """Whether the index of the results lists its statement."""
    limit_from: Literal["paper", "ours"] = "ours"
    """Who chose the limit, if anybody did: it may also be equality of the two sides, or a theorem's bound."""

    @property
    def has_chosen_limit(self) -> bool:
        """Report whether somebody chose the limit."""
        return True

    def inequality(self) -> dict[str, Any]:
        """Return the claim without its texts, its panels and defaults."""
        texts = {"name", "paper", "ours", "statement", "headline", "limit_from"}
        return self.model_dump(exclude_defaults=True, exclude={*texts, "panels"})


class Claim(Statement):
    """``[[claims]]``: a statement of the paper, as an inequality.

    With m the quantity and r = factor · (the same quantity of ``than`` or ``than_mean``, or ``value``): ``at most`` is
    m ≤ r + tolerance, ``at least`` m ≥ r − tolerance, ``close to`` |m − r| ≤ tolerance. With a margin, ``at most`` is
    m ≤ r − margin, ``at least`` m ≥ r + margin. With ``less`` and ``than_less`` both sides are differences.
    """

    quantity: Quantity
    """final: the last value of the measure. best: its best value. tail: its mean over the end of a run. swing: its
    highest minus its lowest value over the end. after_updates: its mean between 0.9 and 1.0 times ``updates`` counted
    updates, interpolated linearly if it was not measured there. …_to_target: the cost until evaluate.target was
    reached; infinite if it never was."""
    measure: str | None = None
    """The measure: loss, or a metric's name; the main one if it is left out."""
    of: str
    """The algorithm's label."""
    less: str | None = None
    """A label whose quantity is subtracted from that of ``of``."""
    relation: Literal["at most", "at least", "close to"]
    """The inequality, see above."""
    than: str | None = None
    """Another label. Exactly one of than, than_mean and value is needed."""
    than_mean: Annotated[tuple[str, ...] | None, Field(strict=False, min_length=2)] = None
    """Labels whose costs to the target are averaged harmonically: m divided by that average is the mean of m's ratios
    to each label."""
    than_panel: str | None = None
    """The panel that than belongs to, above all panels of the claim; the same panel if it is left out."""
    than_less: str | None = None
    """A label whose quantity is subtracted from that of than, in the same panel as than."""
    value: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """A number to compare with."""
    factor: Positive = 1.0
    """Multiplies the right side."""
    tolerance: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Is allowed beyond the right side."""
    margin: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """The least difference between the sides."""
    last_seconds: Positive | None = None
    """Virtual seconds at the end of the run, for tail and swing."""
    last_share: Annotated[float, Field(gt=0, le=1)] | None = None
    """The same as a share of the run's evaluations."""
    updates: Count | None = None
    """Counted updates, for after_updates."""
    panels: Annotated[tuple[str, ...] | None, Field(strict=False, min_length=1)] = None
    """The panels of the claim; all if it is left out, or all below than_panel if that is set."""

    @property
    def has_chosen_limit(self) -> bool:
        """Report whether somebody chose the limit, which is not equality."""
        return self.value is not None or self.factor != 1 or self.tolerance > 0 or self.margin > 0

    @model_validator(mode="after")
    def _check(self) -> "Claim":
        is_cost = self.quantity.endswith("_to_target")
        for is_wrong, message in (
            (
                [self.than, self.than_mean, self.value].count(None) != 2,
                "set exactly one of than, than_mean and value",
            ),
            (self.than_mean is not None and not is_cost, "than_mean is a mean of costs to the target"),
            (self.than_panel is not None and self.than is None, "than_panel needs than"),
            (
                self.than is not None and (self.less is None) is not (self.than_less is None),
                "set both less and than_less, or neither: a difference is compared with a difference",
            ),
            (self.than_less is not None and self.than is None, "than_less needs than"),
            (
                [self.last_seconds, self.last_share].count(None) != (1 if self.quantity in ("tail", "swing") else 2),
                "set last_seconds or last_share for tail and swing, and only there",
            ),
            (
                (self.updates is None) is (self.quantity == "after_updates"),
                "updates is required for after_updates, and allowed only there",
            ),
            (
                is_cost and self.measure is not None,
                "evaluate.target is a value of the main measure: leave measure out",
            ),
            (
                self.margin > 0 and (is_cost or self.factor != 1 or self.tolerance > 0 or self.relation == "close to"),
                "margin is a difference, of at most or at least: it goes with no cost, factor or tolerance",
            ),
            (
                is_cost and self.less is not None,
                "less needs a quantity that every run has: a target may not be reached",
            ),
        ):
            if is_wrong:
                raise ValueError(message)
        return self
