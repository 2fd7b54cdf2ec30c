"""Sections of an experiment's file except ``[local]`` and ``[population]``."""

from typing import Annotated, Any, Literal

from offbeat_core.errors import setting
from offbeat_core.number_checks import short
from offbeat_core.tables.section import Count, Positive, Section
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from offbeat.config.given_objects import OR_GIVEN, Given
from offbeat.config.import_path import is_import_path
from offbeat.config.user_paths import ImportPath, name_or_import_path
from offbeat.data.catalogue import DATASETS
from offbeat.training.augmentation import AugmentationName
from offbeat.training.objectives import METRICS
from offbeat.training.trainer_names import TRAINING_LOSS

ALTERNATIVES = {
    "local.steps": "epochs",
    "local.epochs": "steps",
    "evaluate.every_seconds": "every_versions",
    "evaluate.every_versions": "every_seconds",
}
"""Keys that take the place of another key of their section."""

Table = dict[str, Any]
Metric = Annotated[str | Given, OR_GIVEN]
DataOnDevice = Literal["auto", "always", "never"]


class DataSection(Section):
    """``[data]``: the training and test examples."""

    name: Annotated[str | Given, OR_GIVEN]
    """A built-in data set, or the import path of a function that returns a data set or a pair (train, test)."""
    arguments: Table = Field(default_factory=dict)
    """Keyword arguments of such a function."""
    collate: Annotated[ImportPath | Given | None, OR_GIVEN] = None
    """The import path of a function that pads a list of examples to a batch, as a ``DataLoader``'s ``collate_fn``."""
    fallback: str | None = None
    """The built-in data set to use if this one is missing; the command stops if it is left out."""
    augmentation: AugmentationName | None = None
    """For images, in training only: 4 pixels of zeros on each side, cropped at random, half of them mirrored."""
    validation: Annotated[float, Field(gt=0, lt=1)] | None = None
    """The share of the training examples, of each user's where users are known, that takes the test set's place and is
    not trained on; none if it is left out."""
    on_device: DataOnDevice = "auto"
    """Whether the examples lie in a GPU's memory; auto: if they take at most half of what is free."""

    @field_validator("name", "fallback")
    @classmethod
    def _check_known(cls, name: str | Given | None, info: ValidationInfo) -> str | Given | None:
        return name_or_import_path(name, info, DATASETS) if isinstance(name, str) else name

    @model_validator(mode="after")
    def _check_arguments(self) -> "DataSection":
        is_own = isinstance(self.name, Given) or is_import_path(self.name)
        if self.arguments and not is_own:
            raise ValueError("arguments are for a function of your own: name it in data.name, or leave them out")
        if self.collate is not None and not is_own:
            raise ValueError(f"collate is for data of your own: set {setting('data.name')} to them, or leave it out")
        return self


class ServerSection(Section):
    """``[server]``: leases, and limits on untrusted updates."""

    lease_seconds: Positive | None = None
    """How long a slot is kept for a silent client; without limit if it is left out."""
    max_staleness: Annotated[int, Field(ge=0)] | None = None
    """The largest staleness at which an update counts; any if it is left out."""
    update_clip_norm: Positive | None = None
    """Updates with a larger Euclidean norm are scaled down to it; none if it is left out."""
    max_update_norm: Positive | None = None
    """Updates with a larger Euclidean norm are unused. Without it a simulation has no limit, and a server that of
    [service]."""
    max_step_norm: Positive | None = None
    """Server steps with a larger Euclidean norm are scaled down to it; none if it is left out."""
    aggregate: Literal["mean", "trimmed_mean", "krum"] | None = None
    """How a buffer's updates are averaged; by the algorithm's weighted mean if it is left out or `mean`."""


class EarlyStopSection(Section):
    """A target or a patience, and their metric."""

    target: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """The run also ends at the first evaluation at which the metric has reached this value."""
    patience: Count | None = None
    """The run also ends once so many evaluated versions in a row have not had a better value of the metric."""
    metric: str | None = None
    """The metric of target and patience: one on the test set, or one over clients such as client_accuracy_mean. The
    first of evaluate.metrics, or the loss, if it is left out."""

    @model_validator(mode="after")
    def _check_metric(self) -> "EarlyStopSection":
        if self.metric is not None and not self.is_early:
            raise ValueError("metric is for target and patience: set one of them, or leave it out")
        return self

    @property
    def is_early(self) -> bool:
        """True if a metric may end the run."""
        return self.target is not None or self.patience is not None


class StopSection(EarlyStopSection):
    """``[stop]``: a run ends at the first of these limits.

    One of virtual_seconds, versions and updates is needed.
    """

    virtual_seconds: Positive | None = None
    """Virtual time."""
    versions: Count | None = None
    """Versions of the model."""
    updates: Count | None = None
    """Counted updates."""

    @model_validator(mode="after")
    def _check_some(self) -> "StopSection":
        if self.virtual_seconds is None and self.versions is None and self.updates is None:
            more = "" if self.target is None and self.patience is None else ", too: the metric may never get there"
            raise ValueError(f"set virtual_seconds, versions or updates{more}")
        return self


class EvaluateSection(Section):
    """``[evaluate]``: when and how the model is measured on the test set."""

    every_seconds: Positive | None = None
    """Virtual seconds between two evaluations. Exactly one of this and every_versions is needed."""
    every_versions: Count | None = None
    """Versions between two evaluations: at the instant at which the version reaches or passes a multiple of this. The
    first and the last model of a simulation are always measured; a server measures exact multiples only."""
    metrics: Annotated[tuple[Metric, ...], Field(strict=False)] | None = None
    """accuracy, perplexity, macro_f1, iou, mse, mae, or import paths of functions of (outputs, labels); training_loss,
    in simulations, is the loss on 10,000 training examples. Tables compare the first metric, or the test loss if the
    list is empty. Default: those of the loss and the labels, such as accuracy for classes."""
    better: Literal["higher", "lower"] | None = None
    """Which values of the first metric are better; known for built-in metrics, higher for others."""
    target: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """A value of the first metric; the report shows when it was reached."""
    on_clients: Count | None = None
    """How many available clients measure each evaluated version on their held-out examples; none if it is left out."""

    @field_validator("metrics")
    @classmethod
    def _check_known(cls, metrics: tuple[Metric, ...] | None, info: ValidationInfo) -> tuple[Metric, ...] | None:
        if metrics is None:
            return None
        known = tuple(
            metric if isinstance(metric, Given) else name_or_import_path(metric, info, (*METRICS, TRAINING_LOSS))
            for metric in metrics
        )
        names = [metric_name(metric) for metric in known]
        if len(set(names)) < len(names) or RESERVED & set(names):
            raise ValueError(f"names must differ from each other and from {', '.join(sorted(RESERVED))}")
        return known

    @model_validator(mode="after")
    def _check_one(self) -> "EvaluateSection":
        if (self.every_seconds is None) is (self.every_versions is None):
            one, other = (setting(key) for key in ("every_seconds", "every_versions"))
            raise ValueError(f"set exactly one of {one} and {other}")
        return self


# Columns of a run's history that are not metrics.
PRIVACY_COLUMNS = ("epsilon", "epsilon_replace_one")
RESERVED = frozenset(
    {"seconds", "version", "counted", "unused", "lost", "bytes_down", "bytes_up", "displacement", "loss"}
    | set(PRIVACY_COLUMNS)
)


def metric_name(metric: str | Given) -> str:
    """Return a metric's column: of an import path the part after the colon."""
    return (metric.name if isinstance(metric, Given) else metric).rpartition(":")[2]


class AlgorithmTable(BaseModel):
    """``[algorithms.LABEL]``: an algorithm and its hyper-parameters.

    ``algorithm_table`` checks the hyper-parameters.
    """

    model_config = ConfigDict(frozen=True, extra="allow", use_attribute_docstrings=True)

    algorithm: Annotated[str | Given | None, OR_GIVEN] = None
    """Its name, or the import path of a class of your own; the label if it is left out."""
    local: Table = Field(default_factory=dict)
    """Keys of [local] that are different for this algorithm; ``compression = { name = "none" }`` switches it off."""
    privacy: Table = Field(default_factory=dict)
    """Keys of [privacy] that are different for this algorithm."""

    @field_validator("algorithm")
    @classmethod
    def _make_absolute(cls, name: str | Given | None, info: ValidationInfo) -> str | Given | None:
        # algorithm_table.py reports an unknown name.
        return name_or_import_path(name, info, {name}) if isinstance(name, str) else name

    @model_validator(mode="before")
    @classmethod
    def _make_pattern_absolute(cls, table: Any, info: ValidationInfo) -> Any:
        match table:
            case {"pattern": {"name": str(name)} as pattern} if is_import_path(name):
                try:
                    return {**table, "pattern": {**pattern, "name": name_or_import_path(name, info, ())}}
                except ValueError as error:
                    # algorithm_table.py reports a wrong import path together with the key, but it also imports.
                    if (info.context or {}).get("within") is not None:
                        raise ValueError(f"pattern.name = {short(name)}: {error}") from None
            case _:
                pass
        return table

    @property
    def hyper_parameters(self) -> dict[str, Any]:
        """The other keys of the table."""
        return dict(self.model_extra or {})


def _run_config_value(value: Any) -> Any:
    if not isinstance(value, bool | int | float | str):
        raise ValueError("a setting of an app is true or false, a number or a text")
    return value


# Of a union each member would say that the value is not its own.
RunConfigValue = Annotated[Any, BeforeValidator(_run_config_value)]


class FlowerSection(Section):
    """``[flower]``: a Flower ClientApp that trains the clients, with data of its own."""

    app: ImportPath
    """The import path of the app."""
    run_config: dict[str, RunConfigValue] = Field(default_factory=dict[str, Any])
    """Changes of the app's settings, which are those of ``pyproject.toml`` in the current folder."""
