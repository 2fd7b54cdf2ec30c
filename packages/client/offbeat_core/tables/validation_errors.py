"""Errors of pydantic as lines for the user."""

import math
import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from offbeat_core.errors import MistakesError, OffbeatError, did_you_mean, setting
from offbeat_core.number_checks import cut, short
from pydantic import ValidationError
from pydantic_core import ErrorDetails


def reason(error: ErrorDetails) -> str:
    """Return pydantic's message in the words of this project."""
    if isinstance(error["input"], float) and not math.isfinite(error["input"]):
        return "must be a finite number"
    return error["msg"].removeprefix("Value error, ").replace("Input should be", "must be")


def user_error(lines: Sequence[str]) -> OffbeatError:
    """Return one error for one or several lines."""
    return OffbeatError(lines[0]) if len(lines) == 1 else MistakesError(lines)


@contextmanager
def error_prefix(prefix: object, table: Mapping[str, Any] | None = None) -> Generator[None]:
    """Put a prefix before each line of an error, also of pydantic's."""
    try:
        yield
    except ValidationError as error:
        raise user_error(_prefixed(prefix, mistakes(error, table or {}))) from None
    except OffbeatError as error:
        raise user_error(_prefixed(prefix, error.lines)) from error


def _prefixed(prefix: object, lines: Sequence[str]) -> list[str]:
    shown = setting(str(prefix))
    return [_printable(f"{shown}: {line}" if shown else line) for line in lines]


def _printable(line: str) -> str:
    """Return a line that the keys and names in it, which are a user's, do not break."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in line)


@contextmanager
def collected(lines: list[str]) -> Generator[None]:
    """Add an error's lines to others, so that the user sees all at once."""
    try:
        yield
    except OffbeatError as error:
        lines += error.lines


def mistakes(error: ValidationError, table: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return a line for each mistake: the key, its value and the allowed values.

    ``prefix`` is the table's place in the file, for instance ``algorithms.fedbuff.local``.
    """
    errors = [each for each in error.errors() if not _is_misspelt(each, error.errors())]
    sections = [str(each["loc"][0]) for each in errors if each["type"] == "missing" and len(each["loc"]) == 1]
    lines: list[str] = []
    if len(sections) > 1 and not prefix:
        lines.append(f"the sections {', '.join(sections)} are missing")
        errors = [each for each in errors if each["type"] != "missing" or len(each["loc"]) > 1]
    keys: set[str] = set()
    for each in errors:
        key = ".".join([prefix, *_key(each["loc"], table, missing=each["type"] == "missing")]).strip(".")
        # A union has an error for each of its members: the first one is enough.
        if each["type"] == "unknown_key" or key not in keys:
            lines.append(_problem(setting(key), each))
        keys.add(key)
    return lines


def _is_misspelt(missing: ErrorDetails, errors: Sequence[ErrorDetails]) -> bool:
    """Return whether a key is missing for which an unknown key's hint stands."""
    if missing["type"] != "missing":
        return False
    *section, name = missing["loc"]
    unknown = [each for each in errors if each["type"] == "unknown_key" and [*each["loc"]] == section]
    return any(repr(name) in each.get("ctx", {})["hint"].partition("Allowed")[0] for each in unknown)


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
            names = re.findall(r"'(.*?)'", context["expected_tags"])
            hint = did_you_mean(context["tag"], [name for name in names if name != "own"])
            others = ", or an import path such as my_code.py:name" if "own" in names else ""
            return f"{key}.{_discriminator(context)} = {short(context['tag'])}: {hint}{others}"
        case "model_type" | "dict_type":
            return f"{key} = {short(value)}: must be a table"
        case "string_pattern_mismatch":
            return f"{key} = {short(value)}: names a folder, so it must be made of letters, digits, spaces and . _ + -"
        case "tuple_type":
            return f"{key} = {short(value)}: must be a list"
        case "too_short" if isinstance(value, dict):
            return f"{key}: must not be empty"
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
