"""The sections of an experiment's TOML file: every key, its unit, its range and its default."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from offbeat.algorithms.base import LocalPlan
from offbeat.errors import did_you_mean
from offbeat.population.datasets import DATASETS

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Probability = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """A table of the file; a key that it does not know is an error that names the nearest known one."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, values: Any) -> Any:
        if isinstance(values, dict):
            for key in values:
                if key not in cls.model_fields:
                    raise PydanticCustomError(
                        "unknown_key",
                        "unknown key {key}: {hint}",
                        {"key": str(key), "hint": did_you_mean(str(key), cls.model_fields)},
                    )
        return values


class DataSection(Section):
    """``[data]``: what is learnt."""

    name: str  # a built-in data set
    fallback: str | None = None  # what to take if it cannot be had; None stops with an error

    @field_validator("name", "fallback")
    @classmethod
    def _check_known(cls, name: str | None) -> str | None:
        if name is not None and name not in DATASETS:
            raise ValueError(did_you_mean(name, DATASETS))
        return name


class SoftmaxSection(Section):
    """Multinomial logistic regression."""

    name: Literal["softmax"]


class MlpSection(Section):
    """A multi-layer perceptron with ReLU."""

    name: Literal["mlp"]
    hidden: Annotated[tuple[Count, ...], Field(strict=False)] = (128,)  # units of each hidden layer


ModelSection = Annotated[SoftmaxSection | MlpSection, Field(discriminator="name")]


class LocalSection(Section):
    """``[local]``: what a client does in one visit; the keys are those of ``LocalPlan``."""

    steps: Count
    batch_size: Count
    lr: Positive
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    weight_decay: NotNegative = 0.0
    mu: NotNegative = 0.0
    clip_norm: Positive | None = None

    @model_validator(mode="after")
    def _check_combination(self) -> "LocalSection":
        self.plan()
        return self

    def plan(self) -> LocalPlan:
        """Return the section as the plan that clients get."""
        return LocalPlan(**self.model_dump())


class IidSection(Section):
    """Examples divided evenly and at random."""

    name: Literal["iid"]


class DirichletSection(Section):
    """Each class divided by proportions from a Dirichlet distribution."""

    name: Literal["dirichlet"]
    alpha: Positive  # the smaller, the fewer labels a client has


class ConstantSection(Section):
    """The same value for every client."""

    distribution: Literal["constant"]
    value: Positive


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


class UniformSection(Section):
    """Equally likely to be anywhere from low to high."""

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


DistributionSection = (
    ConstantSection | UniformSection | ExponentialSection | HalfNormalSection | LognormalSection | ParetoSection
)
Distribution = Annotated[DistributionSection, Field(discriminator="distribution")]


class LossySection(Section):
    """Clients whose work gets lost."""

    fraction: Probability  # of the clients
    probability: Probability  # that a visit of such a client is lost


class PopulationSection(Section):
    """``[population]``: who the clients are, what they hold and how fast they are."""

    clients: Count
    partition: Annotated[IidSection | DirichletSection, Field(discriminator="name")]
    step_seconds: Distribution  # virtual seconds a local step
    down_bytes_per_second: Distribution
    up_bytes_per_second: Distribution
    lossy: LossySection | None = None


class ServerSection(Section):
    """``[server]``: how the server deals with clients that do not come back."""

    lease_seconds: Positive | None = None  # how long a slot is kept for a silent client; None keeps it for ever
    max_staleness: Annotated[int, Field(ge=0)] | None = None  # the largest at which an update counts; None for any


class StopSection(Section):
    """``[stop]``: a run ends at whatever comes first; at least one is needed."""

    virtual_seconds: Positive | None = None
    versions: Count | None = None
    updates: Count | None = None  # counted ones

    @model_validator(mode="after")
    def _check_some(self) -> "StopSection":
        if not self.model_dump(exclude_none=True):
            raise ValueError("set virtual_seconds, versions or updates")
        return self


class EvaluateSection(Section):
    """``[evaluate]``: when the model is measured on the test set."""

    every_seconds: Positive  # virtual
    target_accuracy: Probability | None = None  # the report says when it was reached


class AlgorithmTable(BaseModel):
    """``[algorithms.LABEL]``: an algorithm and its hyper-parameters, checked by the algorithm itself."""

    model_config = ConfigDict(frozen=True, extra="allow")

    algorithm: str | None = None  # None: the label is the algorithm's name
    local: dict[str, Any] = {}  # keys of [local] that are different for this algorithm

    @property
    def hyper_parameters(self) -> dict[str, Any]:
        """The other keys of the table."""
        return dict(self.model_extra or {})
