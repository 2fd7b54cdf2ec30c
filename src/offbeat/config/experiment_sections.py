"""Sections of an experiment's file except ``[population]``."""

from contextlib import suppress
from typing import Annotated, Any, Literal

from offbeat_core.errors import OffbeatError
from offbeat_core.local_plan import Epochs, Optimizer
from offbeat_core.setting_names import setting
from offbeat_core.tables.section import Count, NotNegative, Positive, Section
from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_serializer, field_validator, model_validator
from pydantic_core import PydanticCustomError

from offbeat.algorithms.components import LocalPlan
from offbeat.config.compression_table import compression_from_table
from offbeat.config.early_stop_section import EarlyStopSection
from offbeat.config.given import OR_GIVEN, Given
from offbeat.config.import_path import is_import_path, load_callable
from offbeat.config.lr_decay_table import lr_decay_from_table
from offbeat.config.steps_function import StepsFunction
from offbeat.config.user_paths import ImportPath, name_or_import_path
from offbeat.data.catalogue import DATASETS
from offbeat.training.augmentation import AugmentationName
from offbeat.training.metric_names import TRAINING_LOSS
from offbeat.training.objectives import METRICS

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


class LocalSection(Section):
    """``[local]``: the work of a client in one visit, as in ``LocalPlan``."""

    steps: Count | ImportPath | StepsFunction | None = None
    """Local steps; or a function of the client's number of examples that returns them. Either this or epochs."""
    epochs: Positive | None = None
    """Passes over the client's examples, in place of steps; also fractions."""
    batch_size: Count
    """Examples in a step."""
    lr: Positive
    """Step size."""
    optimizer: Optimizer = "sgd"
    """AdamW has torch's betas and epsilon; its moments start from zero in each visit."""
    lr_decay: Table | None = None
    """How lr falls with the version that a visit starts at, see below; it does not if it is left out."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Momentum of SGD; starts from zero in each visit."""
    weight_decay: NotNegative = 0.0
    """Weight decay: added to SGD's gradient, decoupled from AdamW's; 0 by default for both."""
    mu: NotNegative = 0.0
    """FedProx's proximal term, for SGD without momentum."""
    clip_norm: Positive | None = None
    """The largest norm of a step's gradient."""
    compression: Table | None = None
    """How updates are compressed, see below; they are not if it is left out."""
    error_feedback: bool = False
    """Clients keep what compression left out, and add it to their next update."""

    @field_validator("steps", mode="before")
    @classmethod
    def _check_function(cls, steps: Any) -> Any:
        is_function = isinstance(steps, StepsFunction) or (isinstance(steps, str) and is_import_path(steps))
        if steps is None or is_function or (type(steps) is int and steps >= 1):
            return steps
        raise ValueError("must be a whole number of at least 1, or an import path such as my_code.py:steps")

    @field_validator("steps")
    @classmethod
    def _load_function(cls, steps: Any) -> Any:
        try:
            return StepsFunction(load_callable(steps), steps) if isinstance(steps, str) else steps
        except OffbeatError as error:
            raise ValueError(str(error).removeprefix(f"{steps!r}: ")) from None

    @field_serializer("steps")
    def _name_function(self, steps: Any) -> Any:
        return steps.name if isinstance(steps, StepsFunction) else steps

    @field_validator("compression", "lr_decay", mode="before")
    @classmethod
    def _check_made_by_name(cls, table: Any, info: ValidationInfo) -> Any:
        """Add the defaults of the compressor or the decay, so that settings are complete."""
        from_table = compression_from_table if info.field_name == "compression" else lr_decay_from_table
        try:
            made = None if table is None else from_table(info.field_name or "", table)
        except OffbeatError as error:
            raise PydanticCustomError("made_by_name", "{message}", {"message": str(error)}) from None
        return None if made is None else {"name": made.name, **dict(made.parameters)}

    @model_validator(mode="after")
    def _check_combination(self) -> "LocalSection":
        if (self.steps is None) is (self.epochs is None):
            raise ValueError("set exactly one of steps and epochs")
        if self.error_feedback and self.compression is None:
            raise ValueError("error_feedback needs compression: set compression, or error_feedback = false")
        self.plan()
        return self

    def plan(self) -> LocalPlan:
        """Return the section as a plan."""
        values = dict(self)
        epochs = values.pop("epochs")
        if not isinstance(self.steps, int):
            values |= {"steps": 1, "steps_by": self.steps if epochs is None else Epochs(epochs)}
        if self.compression is not None:
            values["compression"] = compression_from_table("compression", self.compression)
        if self.lr_decay is not None:
            values["lr_decay"] = lr_decay_from_table("lr_decay", self.lr_decay)
        return LocalPlan(**values)


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
    {"seconds", "version", "counted", "unused", "lost", "bytes_down", "bytes_up", "loss", *PRIVACY_COLUMNS}
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
                # algorithm_table.py reports a wrong import path together with the key.
                with suppress(ValueError):
                    return {**table, "pattern": {**pattern, "name": name_or_import_path(name, info, ())}}
            case _:
                pass
        return table

    @property
    def hyper_parameters(self) -> dict[str, Any]:
        """The other keys of the table."""
        return dict(self.model_extra or {})
