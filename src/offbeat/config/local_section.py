"""Section ``[local]``: compression, decay of the step size, steps by client."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from offbeat_core.errors import OffbeatError
from offbeat_core.local_plan import MOST_STEPS, Epochs, Optimizer, count_examples
from offbeat_core.lr_decay import LR_DECAYS, LrDecay
from offbeat_core.number_checks import check_count, short
from offbeat_core.tables.section import Count, NotNegative, Positive, Section
from offbeat_core.user_code_errors import user_code
from pydantic import Field, ValidationInfo, field_serializer, field_validator, model_validator
from pydantic_core import PydanticCustomError

from offbeat.algorithms.components import Compression, LocalPlan
from offbeat.compression import COMPRESSORS, Compressor
from offbeat.config.import_path import is_import_path, load_callable
from offbeat.config.objects_by_name import make_by_name
from offbeat.config.user_paths import ImportPath

Table = dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class StepsFunction:
    """The steps of a client by a user's function of its number of examples.

    Attributes:
        function: Maps n ≥ 1 to a whole number, 1 … ``MOST_STEPS``.
        name: Stands for the function in messages and records.

    Raises:
        OffbeatError: When called, if the function fails or returns something else.
    """

    function: Callable[[int], object]
    name: str

    def __call__(self, examples: int, batch_size: int) -> int:
        """Return the steps of a client with so many examples, ≥ 1."""
        with user_code(f"local.steps = {self.name!r} failed for {count_examples(examples)}"):
            steps = self.function(examples)
        try:
            number = check_count("steps", steps)
        except ValueError:
            number = 0
        if not 1 <= number <= MOST_STEPS:
            raise OffbeatError(
                f"local.steps = {self.name!r} returned {steps!r} for {count_examples(examples)}: it must return a "
                f"whole number in 1 … {MOST_STEPS:,}"
            )
        return number


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


def no_compression() -> None:
    """Send updates uncompressed, although ``[local]`` sets a compression."""


COMPRESSION_FACTORIES = {**COMPRESSORS, "none": no_compression}


def compression_from_table(key: str, table: Any) -> Compression | None:
    """Return the compression of a table such as ``{ name = "top_k", share = 0.01 }``."""
    return _compression(make_by_name(key, table, COMPRESSION_FACTORIES))


def check_compression(key: str, compression: Any) -> Compression | None:
    """Return the compression of a plan from Python, whose values may be of any type.

    Accepts a compressor, ``top_k(share=0.01)``, and parameters as a dict, too.
    """
    if compression is None:
        return None
    if not isinstance(compression, Compression | Compressor):
        raise OffbeatError(f"{key} = {short(compression)}: must be a Compression, or a compressor such as top_k(0.01)")
    try:
        parameters = dict(compression.parameters)
    except (TypeError, ValueError):
        raise OffbeatError(
            f'{key}.parameters = {short(compression.parameters)}: must be pairs, such as (("share", 0.01),)'
        ) from None
    return _compression(make_by_name(key, {**parameters, "name": compression.name}, COMPRESSORS))


def _compression(compressor: Compressor | None) -> Compression | None:
    return None if compressor is None else Compression(compressor.name, tuple(compressor.parameters.items()))


def no_decay() -> None:
    """Keep lr for all versions, although ``[local]`` sets a decay."""


LR_DECAY_FACTORIES = {**LR_DECAYS, "none": no_decay}


def lr_decay_from_table(key: str, table: Any) -> LrDecay | None:
    """Return the decay of a table such as ``{ name = "exponential", factor = 0.99 }``."""
    return make_by_name(key, table, LR_DECAY_FACTORIES)
