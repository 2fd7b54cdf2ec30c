from typing import Annotated, Any

import pytest
from offbeat_core.errors import MistakesError, OffbeatError
from offbeat_core.tables.section import Section
from offbeat_core.tables.validation_errors import collected, error_prefix, mistakes
from pydantic import Field, ValidationError

from offbeat.config.population_sections import PopulationSection


class Outer(Section):
    """A section around the population, and plain keys."""

    population: PopulationSection = PopulationSection(clients=2)
    number: Annotated[int, Field(ge=1)] = 1


def line(table: dict[str, Any]) -> str:
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate(table)
    (found,) = mistakes(caught.value, table)
    return found


LONG = 5000 * "x"
SHORT = f"'{78 * 'x'}…"


@pytest.mark.parametrize(
    ("table", "start"),
    [
        ({"number": LONG}, f"number = {SHORT}: must be a valid integer"),
        ({"population": LONG}, f"population = {SHORT}: must be a table"),
        ({LONG: 1}, f"unknown key {79 * 'x'}…: "),
        ({"population": {"clients": 1, "partition": {"name": LONG}}}, f"population.partition.name = {SHORT}: Allowed"),
        ({"population": {"clients": 1, "partition": LONG}}, f"population.partition = {SHORT}: must be a table"),
    ],
)
def test_long_values_are_cut(table: dict[str, Any], start: str) -> None:
    found = line(table)
    assert found.startswith(start)
    assert len(found) < 400


@pytest.mark.parametrize(
    ("key", "value", "example"),
    [
        ("step_seconds", 3, '{ distribution = "constant", value = 3 }'),
        ("up_bytes_per_second", 0.5, '{ distribution = "constant", value = 0.5 }'),
        ("step_seconds", -3, '{ distribution = "constant", value = 1 }'),
        ("step_seconds", True, '{ distribution = "constant", value = 1 }'),
        ("step_seconds", "lognormal", '{ distribution = "constant", value = 1 }'),
        ("partition", "iid", '{ name = "iid" }'),
    ],
)
def test_a_value_that_is_not_a_table_gets_an_example(key: str, value: Any, example: str) -> None:
    found = line({"population": {"clients": 2, key: value}})
    assert found == f"population.{key} = {value!r}: must be a table such as {example}"


@pytest.mark.parametrize(
    ("keys", "start"),
    [
        ({"groups": 1}, ".groups = 1: must be "),
        ({"groups": 3, "first_labels": 3}, ": first_labels makes two groups, so leave out groups = 3"),
    ],
)
def test_the_key_is_without_the_kind_of_table(keys: dict[str, int], start: str) -> None:
    availability = {"name": "alternating", "period_seconds": 1.0, **keys}
    found = line({"population": {"clients": 2, "availability": availability}})
    assert found.startswith(f"population.availability{start}")


def test_a_prefix_comes_before_both_kinds_of_errors() -> None:
    with pytest.raises(OffbeatError, match=r"^file: number = 0: must be greater"), error_prefix("file", {"number": 0}):
        Outer.model_validate({"number": 0})
    with pytest.raises(OffbeatError, match=r"^file: mend this$"), error_prefix("file"):
        raise OffbeatError("mend this")


def test_all_mistakes_are_listed_each_once() -> None:
    table = {"number": 0, "numbr": 1, "population": {"step_seconds": "fast", "num_clients": 3, "lossi": 1}}
    with pytest.raises(OffbeatError) as caught, error_prefix("file", table):
        Outer.model_validate(table)
    starts = (
        "file: unknown key numbr: did you mean 'number'? ",
        "file: unknown key population.num_clients: did you mean 'clients'? ",  # and not that clients is missing
        "file: unknown key population.lossi: did you mean 'lossy'? ",
        "file: population.step_seconds = 'fast': must be a table",
        "file: number = 0: must be greater",
    )
    assert len(caught.value.lines) == len(starts)
    for start in starts:
        assert sum(line.startswith(start) for line in caught.value.lines) == 1, start
    table = {"population": {"lossi": 1}}  # beside another unknown key a missing one is reported
    with pytest.raises(OffbeatError) as caught, error_prefix("file", table):
        Outer.model_validate(table)
    unknown, missing = caught.value.lines
    assert unknown.startswith("file: unknown key population.lossi: ")
    assert missing == "file: population.clients is missing"


def test_errors_are_collected() -> None:
    lines: list[str] = []
    with collected(lines):
        raise MistakesError(["one", "two"])
    with collected(lines):
        raise OffbeatError("three")
    with collected(lines):
        pass
    assert lines == ["one", "two", "three"]
