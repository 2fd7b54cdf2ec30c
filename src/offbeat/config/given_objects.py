"""Objects that a caller of Python gives in place of names and tables of a file."""

import operator
from dataclasses import dataclass
from functools import reduce
from typing import Any, get_args

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

_PREFIX = "python:"


@dataclass(frozen=True, eq=False, repr=False)
class Given:
    """An object, and the name that stands for it in records of the run."""

    value: Any
    name: str

    @classmethod
    def of(cls, given: object) -> "Given":
        """Return an object with a name in the form of an import path: ``python:Net``."""
        name = getattr(given, "__name__", type(given).__name__)
        return cls(given, f"{_PREFIX}{name if str(name).isidentifier() else type(given).__name__}")

    def __repr__(self) -> str:
        # In error messages: what the caller wrote.
        return repr(self.value if self.name.startswith(_PREFIX) else self.name)


class _OrGiven:
    """The mark of a field that a ``Given`` may stand in; files cannot hold one."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        in_files = handler(reduce(operator.or_, (kind for kind in get_args(source) if kind is not Given)))
        return core_schema.no_info_wrap_validator_function(
            lambda value, validate: value if isinstance(value, Given) else validate(value),
            in_files,
            serialization=core_schema.wrap_serializer_function_ser_schema(
                lambda value, write: value.name if isinstance(value, Given) else write(value), schema=in_files
            ),
        )


OR_GIVEN = _OrGiven()
"""For ``Annotated[… | Given, OR_GIVEN]``."""
