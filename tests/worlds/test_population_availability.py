import math
from collections.abc import Callable
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from offbeat.config import population_sections as sections
from offbeat.data.dataset import Dataset
from offbeat.population import availability
from offbeat.worlds.population import Population
from tests.error_line import error_line

Build = Callable[..., Population]

ONE_CLASS = "population.partition={ name = 'one_class' }"
H = 3600.0


@pytest.fixture
def build(population: Build) -> Build:
    """Return a function that builds the population of 20 clients with an availability, changed as by ``--set``."""
    return lambda table, *changes, **more: population(f"population.availability={table}", *changes, **more)


@pytest.fixture
def busy(file: Callable[[str], str]) -> str:
    """Client i does nothing in hours i, i + 1 and i + 10 and much in the others."""
    rows = [(i, hour, 9 * ((hour - i) % 24 not in (0, 1, 10))) for i in range(20) for hour in range(24)]
    return file("client,hour,count\n" + "".join(f"{i},{hour},{count}\n" for i, hour, count in rows))


def test_every_section_is_tested() -> None:
    kinds = get_args(get_args(sections.Availability)[0])
    names = {get_args(kind.model_fields["name"].annotation)[0] for kind in kinds}
    assert names == {"always", "alternating", "bernoulli", "quiet_hours", "intervals"}


def test_always(build: Build) -> None:
    made = build("{ name = 'always' }").devices
    assert isinstance(made.availability, availability.Always)
    assert made.when_away == "pause"


def test_alternating(build: Build) -> None:
    table = "{ name = 'alternating', groups = 3, period_seconds = 10.0 }"
    made = build(table, "population.when_away=lose").devices
    assert made.when_away == "lose"
    assert [made.availability.next_available(client, 0.0) for client in (0, 1, 2, 3, 4)] == [0.0, 10.0, 20.0, 0.0, 10.0]
    assert made.availability.next_offline(1, 12.0) == 20.0


@pytest.mark.parametrize("first_labels", [1, 3, 5])
def test_alternating_by_label_begins_with_the_first_ones(first_labels: int, build: Build) -> None:
    table = f"{{ name = 'alternating', first_labels = {first_labels}, period_seconds = 10.0 }}"
    made = build(table, ONE_CLASS).devices.availability
    # Two clients a digit.
    first = 2 * first_labels
    assert [made.next_available(client, 0.0) for client in range(20)] == [0.0] * first + [10.0] * (20 - first)
    assert [made.next_available(client, 10.0) for client in range(20)] == [20.0] * first + [10.0] * (20 - first)
    assert made.next_offline(0, 3.0) == 10.0


def test_alternating_by_label_uses_the_shards_of_the_seed(build: Build, digits: Dataset) -> None:
    for seed in (1, 2):
        made = build("{ name = 'alternating', first_labels = 4, period_seconds = 10.0 }", seed=seed)
        mostly = [np.bincount(digits.train_labels[shard]).argmax() for shard in made.shards]
        there = [made.devices.availability.next_available(client, 0.0) == 0.0 for client in range(20)]
        assert there == [label < 4 for label in mostly]


def test_bernoulli(build: Build) -> None:
    made = build("{ name = 'bernoulli', probability = 0.5, round_seconds = 4.0 }", seed=7).devices.availability
    expected = availability.Bernoulli(0.5, 4.0, 7)
    times = [made.next_available(client, 1.0) for client in range(20)]
    assert times == [expected.next_available(client, 1.0) for client in range(20)]
    assert times != [availability.Bernoulli(0.5, 4.0, 8).next_available(client, 1.0) for client in range(20)]
    assert set(times) > {1.0, 4.0}


def test_quiet_hours(build: Build) -> None:
    table = "{ name = 'quiet_hours', hours = 2.0, first_hour = 5.0, spread_hours = 1.0 }"
    made = build(table, seed=7).devices.availability
    starts = availability.quiet_starts(20, 5.0, 1.0, 7)
    assert [made.next_available(client, 0.0) for client in range(20)] == starts.tolist()
    assert made.next_offline(0, starts[0]) == pytest.approx(starts[0] + 7200)


def test_quiet_hours_by_hourly_counts(build: Build, busy: str) -> None:
    made = build(f"{{ name = 'quiet_hours', hours = 3, path = '{busy}' }}").devices.availability
    assert (made.next_available(5, 0.0), made.next_offline(5, 5 * H)) == (5 * H, 7 * H)
    assert (made.next_available(5, 7 * H), made.next_offline(5, 15 * H)) == (15 * H, 16 * H)
    # Client 14's third hour is 0.
    assert made.next_available(14, 0.0) == 0.0
    eight = build(f"{{ name = 'quiet_hours', path = '{busy}' }}").devices.availability
    # Of the 21 others, the first five.
    assert (eight.next_available(19, 0.0), eight.next_offline(19, 0.0)) == (0.0, 6 * H)


def test_by_hour_takes_the_middle_of_the_longest_quiet_stay(build: Build, busy: str, digits: Dataset) -> None:
    two = replace(digits, train_labels=digits.train_labels % 2, classes=2)
    by_hour = "population.partition={ name = 'by_hour', alpha = 0.0 }"
    shards = build(f"{{ name = 'quiet_hours', hours = 3, path = '{busy}' }}", by_hour, dataset=two).shards
    found = [two.train_labels[shard].mean() for shard in shards]
    # Client i's longest stay is [i, i + 2): it counts for hour i + 13.
    expected = [min((i + 13) % 24, 24 - (i + 13) % 24) / 12 for i in range(20)]
    np.testing.assert_allclose(found, expected, atol=1 / len(shards[0]))


def test_intervals(build: Build, file: Callable[[str], str]) -> None:
    name = file("client,start_seconds,end_seconds\n3,5,8\n")
    made = build(f"{{ name = 'intervals', path = '{name}' }}").devices.availability
    assert made.next_available(3, 0.0) == 5.0
    assert made.next_offline(3, 6.0) == 8.0
    assert made.next_available(0, 0.0) == math.inf


FIRST = "{{ name = 'alternating', first_labels = {}, period_seconds = 1.0 }}"


@pytest.mark.parametrize(
    ("table", "changes", "parts"),
    [
        (FIRST.format(10), [ONE_CLASS], ["first_labels is 10", "below 10"]),
        (FIRST.format(2), ["population.partition={ name = 'iid' }", "population.clients=1"], ["first_labels", "empty"]),
        ("{ name = 'quiet_hours', path = 'nowhere.csv' }", [], ["nowhere.csv", "No such file"]),
        (
            "{ name = 'quiet_hours', path = 'nowhere.csv' }",
            ["population.partition={ name = 'by_hour', alpha = 0.5 }"],
            ["nowhere.csv", "No such file"],
        ),
    ],
)
def test_an_error_names_the_key(table: str, changes: list[str], parts: list[str], build: Build) -> None:
    line = error_line(lambda: build(table, *changes))
    assert line.startswith("population.availability: ")
    assert all(part in line for part in parts)


def test_without_classes_there_are_no_first_labels(build: Build, digits: Dataset) -> None:
    targets = replace(digits, train_labels=digits.train_labels.astype(np.float32), classes=None)
    line = error_line(lambda: build(FIRST.format(1), "population.partition={ name = 'iid' }", dataset=targets))
    assert line == (
        "population.availability: first_labels needs one class for each example, a whole number from 0, but the labels "
        "of digits are float32; use groups instead"
    )
