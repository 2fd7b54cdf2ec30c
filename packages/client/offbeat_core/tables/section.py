"""Base of all sections of a file: unknown keys and ranges of numbers."""

from typing import Annotated, Any, Self

from offbeat_core.errors import did_you_mean, hint_for_other_name
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Probability = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """A table of the file; an unknown key is an error with a suggestion."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)

    @model_validator(mode="wrap")
    @classmethod
    def _refuse_unknown_keys(cls, values: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        """Report unknown keys together with all other mistakes of the section."""
        unknown = [key for key in values if key not in cls.model_fields] if isinstance(values, dict) else []
        if not unknown:
            return validate(values)
        problems = [_unknown_key(str(key), _hint(str(key), cls), values) for key in unknown]
        try:
            validate({key: value for key, value in values.items() if key in cls.model_fields})
        except ValidationError as error:
            problems += map(_again, error.errors())
        raise ValidationError.from_exception_data(cls.__name__, problems)


def _hint(key: str, section: type[Section]) -> str:
    """Return what was meant: a key of a table within the section, or one of its own."""
    for table, field in section.model_fields.items():
        kind = field.annotation
        keys = kind.model_fields if isinstance(kind, type) and issubclass(kind, Section) else {}
        hint = "" if key in keys else hint_for_other_name(key, keys)
        if hint is not None:
            return f"{hint}It belongs in the table [{table}]"
    return did_you_mean(key, section.model_fields)


def _unknown_key(key: str, hint: str, values: Any) -> InitErrorDetails:
    context = {"key": key, "hint": hint}
    return InitErrorDetails(type=PydanticCustomError("unknown_key", "unknown key {key}: {hint}", context), input=values)


def _again(error: ErrorDetails) -> InitErrorDetails:
    """Return an error so that it can be raised once more."""
    context = {**error.get("ctx", {}), "message": error["msg"]}
    kind: Any = error["type"]
    return InitErrorDetails(
        type=PydanticCustomError(kind, "{message}", context), loc=error["loc"], input=error["input"]
    )
