"""Errors of pydantic as one line for the user."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from offbeat.errors import OffbeatError

_LONGEST = 80  # characters of a value or a key


def cut(text: str) -> str:
    """Return the text, shortened if it is long."""
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def short(value: object) -> str:
    """Return a value for a message, shortened if it is long."""
    return cut(repr(value))


def reason(error: ErrorDetails) -> str:
    """Return pydantic's message in the words of this project."""
    return error["msg"].removeprefix("Value error, ").replace("Input should be", "must be")


@contextmanager
def error_prefix(prefix: object, table: Mapping[str, Any] | None = None) -> Generator[None]:
    """Put a prefix before an error's message, also before pydantic's."""
    try:
        yield
    except ValidationError as error:
        raise OffbeatError(f"{prefix}: {one_line(error, table or {})}") from None
    except OffbeatError as error:
        raise OffbeatError(f"{prefix}: {error}") from error


def one_line(error: ValidationError, table: Mapping[str, Any], prefix: str = "") -> str:
    """Return the first problem: the key, its value and the allowed values.

    ``prefix`` is the table's place in the file, for instance ``algorithms.fedbuff.local``.
    """
    missing = [".".join([prefix, *map(str, e["loc"])]).strip(".") for e in error.errors() if e["type"] == "missing"]
    if len(missing) == error.error_count() > 1 and all("." not in key for key in missing):
        return f"the sections {', '.join(missing)} are missing"
    first = error.errors()[0]
    key = ".".join([prefix, *_key(first["loc"], table, missing=first["type"] == "missing")]).strip(".")
    others = error.error_count() - 1
    return _problem(key, first) + (f" (and {others} more)" if others else "")


def _problem(key: str, error: ErrorDetails) -> str:
    context, value = error.get("ctx", {}), error["input"]
    match error["type"]:
        case "unknown_key":
            return f"unknown key {key}{'.' if key else ''}{cut(context['key'])}: {context['hint']}"
        case "made_by_name":  # its message has the last part of the key
            return context["message"].replace(key.rpartition(".")[2], key, 1)
        case "missing":
            return f"{key} is missing"
        case "model_attributes_type" | "union_tag_not_found" if not isinstance(value, dict):
            return f"{key} = {short(value)}: must be a table such as {_example(key, value)}"
        case "union_tag_not_found":
            name = _discriminator(context)
            return (
                f"{key}.{name} = {short(value[name])}: must be a string"
                if name in value
                else f"{key}.{name} is missing"
            )
        case "union_tag_invalid":
            expected = context["expected_tags"].replace("'own'", "an import path such as my_code.py:name")
            return f"{key}.{_discriminator(context)} = {short(context['tag'])}: must be one of {expected}"
        case "model_type" | "dict_type":
            return f"{key} = {short(value)}: must be a table"
        case "string_pattern_mismatch":
            return f"{key} = {short(value)}: names a folder, so it must be made of letters, digits, spaces and . _ + -"
        case "tuple_type":
            return f"{key} = {short(value)}: must be a list"
        case _:
            message = reason(error)
            if not key:
                return message
            # A table is too long for the message, which names the table's keys instead.
            return f"{key}: {message}" if isinstance(value, dict) else f"{key} = {short(value)}: {message}"


def _key(location: tuple[int | str, ...], table: Any, *, missing: bool) -> list[str]:
    """Return the parts of a location that are keys of the table.

    pydantic adds the members of unions.
    """
    *parents, last = location or ("",)
    keys: list[str] = []
    for part in parents:
        if isinstance(table, dict) and part in table:
            keys.append(cut(str(part)))
            table = table[part]
    if missing or not isinstance(table, dict) or last in table:
        keys.append(cut(str(last)))
    return keys


def _example(key: str, value: object) -> str:
    """Return a table that the user probably meant."""
    if key.endswith(("step_seconds", "bytes_per_second")):
        number = value if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else 1
        return f'{{ distribution = "constant", value = {number} }}'
    return f'{{ name = "{cut(value) if isinstance(value, str) else "…"}" }}'


def _discriminator(context: dict[str, Any]) -> str:
    """Return the key that decides the kind of table; for a function it is the name."""
    name = context["discriminator"].strip("'")
    return "name" if name.endswith("()") else name
