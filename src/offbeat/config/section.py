"""What all sections of an experiment's file share: unknown keys, ranges of numbers, paths."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from offbeat.config.import_path import canonical, is_import_path
from offbeat.errors import OffbeatError, did_you_mean

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Probability = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """A table of the file; a key that it does not know is an error that names the nearest known one."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)

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


def _folder(info: ValidationInfo) -> Path:
    """The folder of the experiment's file, which paths in it are relative to."""
    return (info.context or {}).get("folder", Path())


def _absolute(path: str, info: ValidationInfo) -> str:
    try:
        return str((_folder(info) / Path(path).expanduser()).absolute())
    except RuntimeError:
        raise ValueError("there is no such user; write the path out") from None


def _canonical(text: str, info: ValidationInfo) -> str:
    if not is_import_path(text):
        raise ValueError('must be an import path such as "my_code.py:name" or "package.module:name"')
    return _absolute_import(text, info)


def _absolute_import(text: str, info: ValidationInfo) -> str:
    try:
        return canonical(text, _folder(info))
    except OffbeatError as error:
        # The line will begin with the key and the text.
        raise ValueError(str(error).removeprefix(f"{text!r}: ")) from None


# A file or folder of the user's, relative to the experiment's file; absolute once it is read.
UserPath = Annotated[str, AfterValidator(_absolute)]

# Something of the user's own code; a path in it is absolute once it is read.
ImportPath = Annotated[str, AfterValidator(_canonical)]


def name_or_import_path(text: str, info: ValidationInfo, known: Any) -> str:
    """Check a name against the built-in ones; an import path stands for the user's own."""
    if is_import_path(text):
        return _absolute_import(text, info)
    if text not in known:
        raise ValueError(f"{did_you_mean(text, known)}, or an import path such as my_code.py:name")
    return text
