from typing import Annotated, Any

import pytest
from pydantic import Field, ValidationError

from offbeat.config.population_sections import PopulationSection
from offbeat.config.section import Section
from offbeat.config.validation_errors import one_line


class Outer(Section):
    """A section around the population, and plain keys."""

    population: PopulationSection = PopulationSection(clients=2)
    number: Annotated[int, Field(ge=1)] = 1


def line(table: dict[str, Any]) -> str:
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate(table)
    return one_line(caught.value, table)


LONG = 5000 * "x"
SHORT = f"'{78 * 'x'}…"


@pytest.mark.parametrize(
    ("table", "start"),
    [
        ({"number": LONG}, f"number = {SHORT}: must be a valid integer"),
        ({"population": LONG}, f"population = {SHORT}: must be a table"),
        ({LONG: 1}, f"unknown key {79 * 'x'}…: "),
        ({"population": {"clients": 1, "partition": {"name": LONG}}}, f"population.partition.name = {SHORT}: must be"),
        ({"population": {"clients": 1, "when_away": LONG}}, f"population.when_away = {SHORT}: must be"),
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


@pytest.mark.parametrize("groups", [1, 1_000_001, 2**63])
def test_groups_are_bounded(groups: int) -> None:
    availability = {"name": "alternating", "groups": groups, "period_seconds": 1.0}
    found = line({"population": {"clients": 2, "availability": availability}})
    assert found.startswith(f"population.availability.groups = {groups}: must be ")
