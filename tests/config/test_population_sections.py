"""Keys that depend on each other; single ones are with the experiment's other mistakes."""

import tomllib
from collections.abc import Callable

import pytest
import tomli_w
from offbeat_core.errors import OffbeatError

from offbeat.config.experiment_file import Experiment

Load = Callable[..., Experiment]

FIRST = "name = 'alternating', period_seconds = 1.0, first_labels = 3"
PATH = "name = 'quiet_hours', path = 'hours.csv'"


@pytest.mark.parametrize(
    ("table", "line"),
    [
        (f"{PATH}, hours = 7.5", "with a path, hours must be a whole number, got 7.5"),
        (f"{PATH}, first_hour = 1", "the file at path decides the hours, so leave out first_hour = 1"),
        (f"{PATH}, spread_hours = 2.5", "the file at path decides the hours, so leave out spread_hours = 2.5"),
    ],
)
def test_keys_that_do_not_go_together(table: str, line: str, experiment: Load) -> None:
    with pytest.raises(OffbeatError, match=f"tiny.toml: population.availability: {line}$"):
        experiment(f"population.availability={{ {table} }}")


@pytest.mark.parametrize(
    ("key", "table"),
    [("up_bytes_per_second", "distribution = 'trace'"), ("step_seconds", "distribution = 'phones', median = 1.0")],
)
@pytest.mark.parametrize("given", ["", ", name = 'NAME', path = 'file'"])
def test_measurements_have_either_a_name_or_a_path(key: str, table: str, given: str, experiment: Load) -> None:
    given = given.replace("NAME", "3g-oboe" if "trace" in table else "ai-benchmark")
    with pytest.raises(OffbeatError, match=rf"population\.{key}: set exactly one of name and path$"):
        experiment(f"population.{key}={{ {table}{given} }}")


def test_an_unknown_name_of_traces_is_refused(experiment: Load) -> None:
    with pytest.raises(OffbeatError, match=r"up_bytes_per_second\.name = '4g': .*3g-oboe"):
        experiment("population.up_bytes_per_second={ distribution = 'trace', name = '4g' }")


@pytest.mark.parametrize("table", [FIRST, PATH, f"{PATH}, hours = 24"])
def test_a_run_can_be_run_again(table: str, experiment: Load) -> None:
    first = experiment(f"population.availability={{ {table} }}").resolved("fedavg", 1, "digits")
    written = tomllib.loads(tomli_w.dumps(first["population"]["availability"]))
    again = experiment("population.availability=" + _inline(written))
    assert again.resolved("fedavg", 1, "digits") == first


@pytest.mark.parametrize(
    ("key", "table"),
    [
        ("partition", "{ name = 'one_class' }"),
        ("availability", "{ name = 'alternating', period_seconds = 1.0 }"),
        ("availability", "{ name = 'quiet_hours' }"),
        ("up_bytes_per_second", "{ distribution = 'trace', name = '3g-oboe' }"),
    ],
)
def test_an_optional_key_that_is_left_out_is_not_written(key: str, table: str, experiment: Load) -> None:
    """Runs from before the key existed are found again."""
    written = experiment(f"population.{key}={table}").resolved("fedavg", 1, "digits")["population"][key]
    assert not {"sigma", "first_labels", "path"} & set(written)


def _inline(table: dict[str, object]) -> str:
    return "{ " + ", ".join(f"{key} = {value!r}" for key, value in table.items()) + " }"
