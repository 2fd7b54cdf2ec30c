"""Section ``[population]`` of an experiment's file."""

from typing import Annotated, Literal

from offbeat_core.tables.section import Count, NotNegative, Positive, Probability, Section
from pydantic import Field, model_validator

from offbeat.config.given_objects import OR_GIVEN, Given
from offbeat.config.user_paths import UserPath


class IidSection(Section):
    """Equal numbers of examples, divided at random."""

    name: Literal["iid"]


class DirichletSection(Section):
    """Each class divided by proportions from a Dirichlet distribution."""

    name: Literal["dirichlet"]
    alpha: Positive
    """A smaller value gives each client fewer labels."""


class OneClassSection(Section):
    """Every client holds examples of one class."""

    name: Literal["one_class"]
    sigma: NotNegative | None = None
    """Standard deviation of a client's number of examples, in units of its class's mean; equal numbers if left out."""


class MixingSection(Section):
    """Part of each client's examples from all classes, the rest from its own classes."""

    name: Literal["mixing"]
    mu: Probability
    """The part from all classes: 1 is IID; at 0 each client holds only its own classes."""


class QuantitySkewSection(Section):
    """Normally distributed numbers of examples, divided at random."""

    name: Literal["quantity_skew"]
    sigma: NotNegative
    """Standard deviation of a client's number of examples, in units of the mean number."""


class ByUserSection(Section):
    """Each client is a user of a data set that records its users."""

    name: Literal["by_user"]


class ByHourSection(Section):
    """Two classes, in shares that follow each client's quiet hours."""

    name: Literal["by_hour"]
    alpha: Probability
    """Share of positive labels of clients that are available around noon; around midnight it is 1 − alpha."""


class FilePartitionSection(Section):
    """Partition from a CSV file with the columns client and example."""

    name: Literal["file"]
    path: UserPath
    """The file, relative to the experiment's file."""


Partition = Annotated[
    IidSection
    | DirichletSection
    | OneClassSection
    | MixingSection
    | QuantitySkewSection
    | ByUserSection
    | ByHourSection
    | FilePartitionSection,
    Field(discriminator="name"),
]


class ConstantSection(Section):
    """The same value for every client."""

    distribution: Literal["constant"]
    value: Positive


class UniformSection(Section):
    """Uniformly distributed from low to high."""

    distribution: Literal["uniform"]
    low: Positive
    high: Positive

    @model_validator(mode="after")
    def _check_order(self) -> "UniformSection":
        if self.high < self.low:
            raise ValueError(f"high must be at least low, {self.low}, got {self.high}")
        return self


class ExponentialSection(Section):
    """P(value > x) = exp(−x / mean)."""

    distribution: Literal["exponential"]
    mean: Positive


class HalfNormalSection(Section):
    """|z| · mean · √(π/2), z standard normal."""

    distribution: Literal["half_normal"]
    mean: Positive


class LognormalSection(Section):
    """median · exp(sigma · z), z standard normal."""

    distribution: Literal["lognormal"]
    median: Positive
    sigma: NotNegative


class ParetoSection(Section):
    """P(value > x) = (minimum / x)^shape."""

    distribution: Literal["pareto"]
    minimum: Positive
    shape: Positive


class FileSection(Section):
    """A column of a CSV file with a row for each client."""

    distribution: Literal["file"]
    path: UserPath
    """The file, relative to the experiment's file."""
    column: str | None = None
    """The column's name; that of the key, for instance step_seconds, if it is left out."""


class PhonesSection(Section):
    """Measured speeds of phones; each client is a random phone."""

    distribution: Literal["phones"]
    name: Literal["ai-benchmark"] | None = None
    """The 333 phones of AI Benchmark's ranking; either this or a path."""
    path: UserPath | None = None
    """A JSON list of phones with their AI_Score, relative to the experiment's file."""
    median: Positive
    """The value of the median phone."""

    @model_validator(mode="after")
    def _check_one(self) -> "PhonesSection":
        _refuse_none_or_both(self.name, self.path)
        return self


class TraceSection(Section):
    """Bandwidth over time; each client starts at a random place of a random trace."""

    distribution: Literal["trace"]
    name: Literal["3g-oboe"] | None = None
    """508 traces of mobile bandwidth, 3G's and Oboe's; either this or a path."""
    path: UserPath | None = None
    """A file (rows of seconds and Mbit/s), or a folder or tar archive of files, relative to the experiment's file."""

    @model_validator(mode="after")
    def _check_one(self) -> "TraceSection":
        _refuse_none_or_both(self.name, self.path)
        return self


def _refuse_none_or_both(name: str | None, path: str | None) -> None:
    if (name is None) is (path is None):
        raise ValueError("set exactly one of name and path")


_Any = (
    ConstantSection
    | UniformSection
    | ExponentialSection
    | HalfNormalSection
    | LognormalSection
    | ParetoSection
    | FileSection
)
SpeedSection = _Any | PhonesSection
BandwidthSection = _Any | TraceSection


class AlwaysSection(Section):
    """All clients are always available."""

    name: Literal["always"]


class AlternatingSection(Section):
    """Groups of clients that are available in turn."""

    name: Literal["alternating"]
    groups: Annotated[int, Field(ge=2, le=1_000_000)] = 2
    """Client i is in group i mod groups."""
    first_labels: Annotated[int, Field(ge=1)] | None = None
    """Two groups by label instead: clients whose most frequent label is below this number, then all others."""
    period_seconds: Positive
    """Virtual seconds until the next group's turn."""

    @model_validator(mode="after")
    def _check_groups(self) -> "AlternatingSection":
        if self.first_labels is not None and self.groups != 2:
            raise ValueError(f"first_labels makes two groups, so leave out groups = {self.groups}")
        return self


class BernoulliSection(Section):
    """Each client is available or not at random, drawn anew for each period."""

    name: Literal["bernoulli"]
    probability: Annotated[float, Field(gt=0, le=1)]
    round_seconds: Positive
    """Virtual seconds between two draws."""


class QuietHoursSection(Section):
    """Each client is available in its own quiet hours, the same every day."""

    name: Literal["quiet_hours"]
    hours: Annotated[float, Field(gt=0, le=24)] = 8.0
    """Quiet hours in a day."""
    first_hour: Annotated[float, Field(ge=0, lt=24)] = 0.0
    """The earliest start of quiet hours; virtual time begins at hour 0."""
    spread_hours: Annotated[float, Field(ge=0, le=24)] = 24.0
    """Starts are uniformly distributed over so many hours."""
    path: UserPath | None = None
    """A CSV file with the columns client, hour and count; a client's quiet hours are those with its lowest counts."""

    @model_validator(mode="after")
    def _check_path(self) -> "QuietHoursSection":
        if self.path is None:
            return self
        if not self.hours.is_integer():
            raise ValueError(f"with a path, hours must be a whole number, got {self.hours:g}")
        # The defaults pass, because the settings in a run's folder contain all defaults.
        for key in ("first_hour", "spread_hours"):
            if getattr(self, key) != type(self).model_fields[key].default:
                raise ValueError(f"the file at path decides the hours, so leave out {key} = {getattr(self, key):g}")
        return self


class IntervalsSection(Section):
    """Intervals from a CSV file with columns client, start_seconds and end_seconds."""

    name: Literal["intervals"]
    path: UserPath
    """The file, relative to the experiment's file."""


Availability = Annotated[
    AlwaysSection | AlternatingSection | BernoulliSection | QuietHoursSection | IntervalsSection,
    Field(discriminator="name"),
]


class LossySection(Section):
    """Clients whose work gets lost."""

    fraction: Probability
    """Share of clients that lose work."""
    probability: Probability
    """Probability that a visit of such a client is lost."""


Speed = Annotated[Annotated[SpeedSection, Field(discriminator="distribution")] | Given, OR_GIVEN]
Bandwidth = Annotated[Annotated[BandwidthSection, Field(discriminator="distribution")] | Given, OR_GIVEN]


class PopulationSection(Section):
    """``[population]``: the clients, their examples, speeds and availability."""

    clients: Count
    """Number of clients."""
    partition: Partition = IidSection(name="iid")
    """How examples are divided among clients."""
    holdout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The share of each client's examples, chosen at random, that it never trains on: for evaluate.on_clients."""
    step_seconds: Speed = ConstantSection(distribution="constant", value=1.0)
    """Virtual seconds of a client's local step."""
    down_bytes_per_second: Bandwidth = ConstantSection(distribution="constant", value=1e6)
    """How fast a client downloads."""
    up_bytes_per_second: Bandwidth = ConstantSection(distribution="constant", value=1e6)
    """How fast a client uploads."""
    availability: Annotated[Availability | Given, OR_GIVEN] = AlwaysSection(name="always")
    """When clients are available."""
    when_away: Literal["pause", "lose"] = "pause"
    """A visit whose client goes offline pauses until the client is back, or is lost."""
    lossy: LossySection | None = None
    """Clients whose work gets lost; none if it is left out."""
