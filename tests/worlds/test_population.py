import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from offbeat_core.randomness import Purpose

from offbeat.config import population_sections as sections
from offbeat.data.dataset import Dataset
from offbeat.population import availability, partition
from offbeat.population.devices import distributions, published_measurements
from offbeat.population.devices.bandwidth_traces import load_traces
from offbeat.population.devices.client_devices import ConstantLink, Devices
from offbeat.worlds.population import Population, pool_clients
from tests.error_line import error_line

WriteFile = Callable[..., str]
Build = Callable[..., Population]


USERS = np.arange(1433) % 25
BY_HOUR = 'population.partition={ name = "by_hour", alpha = 0.25 }'
QUIET = "population.availability={ name = 'quiet_hours', hours = 2.0, first_hour = 5.0, spread_hours = 20.0 }"


def without_order(shards: list[Any]) -> list[list[int]]:
    return [sorted(shard.tolist()) for shard in shards]


class TestPartitions:
    @pytest.mark.parametrize(
        ("table", "expected"),
        [
            ('{ name = "iid" }', lambda labels: partition.iid(labels, 20, 7)),
            ('{ name = "dirichlet", alpha = 0.25 }', lambda labels: partition.dirichlet(labels, 20, 0.25, 7)),
            ('{ name = "one_class" }', lambda labels: partition.one_class(labels, 20, 7)),
            ('{ name = "one_class", sigma = 0.0 }', lambda labels: partition.one_class(labels, 20, 7)),
            ('{ name = "one_class", sigma = 0.5 }', lambda labels: partition.one_class(labels, 20, 7, 0.5)),
            ('{ name = "mixing", mu = 0.25 }', lambda labels: partition.mixing(labels, 20, 0.25, 7)),
            ('{ name = "quantity_skew", sigma = 0.5 }', lambda labels: partition.quantity_skew(labels, 20, 0.5, 7)),
            ('{ name = "by_user" }', lambda _: partition.by_user(USERS, 20, 7)),
        ],
    )
    def test_each_section_makes_its_object(
        self, table: str, expected: Callable[[Any], Any], population: Build, digits: Dataset
    ) -> None:
        made = population(f"population.partition={table}", seed=7, dataset=replace(digits, users=USERS)).shards
        for mine, theirs in zip(made, expected(digits.train_labels), strict=True):
            assert mine.tolist() == theirs.tolist()

    def test_held_out_examples_are_taken_out_of_the_shards(self, population: Build) -> None:
        whole, divided = population(), population("population.holdout=0.25")
        assert [part.tolist() for part in whole.held_out] == [[]] * 20
        for before, kept, held_out in zip(whole.shards, divided.shards, divided.held_out, strict=True):
            assert len(held_out) == round(len(before) / 4)
            assert sorted([*kept, *held_out]) == sorted(before)
        assert np.array_equal(whole.devices.step_seconds, divided.devices.step_seconds)

    def test_every_section_is_tested(self) -> None:
        kinds = get_args(get_args(sections.Partition)[0])
        names = {get_args(kind.model_fields["name"].annotation)[0] for kind in kinds}
        assert names == {"iid", "dirichlet", "one_class", "mixing", "quantity_skew", "by_user", "by_hour", "file"}

    def test_from_a_file(self, population: Build, file: WriteFile) -> None:
        name = file("client,example\n" + "".join(f"{i % 20},{i}\n" for i in range(0, 100)))
        made = population(f"population.partition={{ name = 'file', path = '{name}' }}").shards
        assert without_order(made) == [[i, i + 20, i + 40, i + 60, i + 80] for i in range(20)]

    def test_by_hour_takes_the_middle_of_the_quiet_hours(self, population: Build, digits: Dataset) -> None:
        two = replace(digits, train_labels=digits.train_labels % 2, classes=2)
        made = population(BY_HOUR, QUIET, seed=7, dataset=two).shards
        middles = availability.quiet_starts(20, 5.0, 20.0, 7) / 3600 + 1
        for mine, theirs in zip(made, partition.by_hour(two.train_labels, middles % 24, 0.25, 7), strict=True):
            assert mine.tolist() == theirs.tolist()

    @pytest.mark.parametrize(
        ("changes", "parts"),
        [
            (['population.partition={ name = "by_user" }'], ["digits does not say", "user", "another"]),
            (["population.clients=1434"], ["1434 clients", "1433"]),
            (['population.partition={ name = "file", path = "nowhere.csv" }'], ["nowhere.csv", "No such file"]),
            ([BY_HOUR], ['by_hour needs availability.name = "quiet_hours", not "always"']),
            ([BY_HOUR, QUIET], ["by_hour balances two labels, but the training examples have 10", "two classes"]),
        ],
    )
    def test_an_impossible_partition_names_the_key(
        self, changes: list[str], parts: list[str], population: Build
    ) -> None:
        line = error_line(lambda: population(*changes))
        assert line.startswith("population.partition: ")
        assert all(part in line for part in parts)

    @pytest.mark.parametrize("table", ['{ name = "dirichlet", alpha = 1.0 }', '{ name = "by_hour", alpha = 0.5 }'])
    def test_a_partition_of_classes_needs_classes(self, table: str, population: Build, digits: Dataset) -> None:
        targets = replace(digits, train_labels=digits.train_labels.astype(np.float32), classes=None)
        line = error_line(lambda: population(f"population.partition={table}", dataset=targets))
        needed = "needs one class for each example, a whole number from 0"
        assert f"{needed}, but the labels of digits are float32; use another partition" in line
        assert sum(map(len, population("population.partition={ name = 'iid' }", dataset=targets).shards)) == 1433


DRAWN: dict[str, tuple[Callable[..., Any], dict[str, float]]] = {
    "constant": (distributions.constant, {"value": 2.0}),
    "uniform": (distributions.uniform_between, {"low": 1.0, "high": 3.0}),
    "exponential": (distributions.exponential, {"mean": 2.0}),
    "half_normal": (distributions.half_normal, {"mean": 2.0}),
    "lognormal": (distributions.lognormal, {"median": 2.0, "sigma": 0.5}),
    "pareto": (distributions.pareto, {"minimum": 1.0, "shape": 2.0}),
}
KEYS = {
    "step_seconds": (lambda devices: devices.step_seconds, Purpose.DEVICE_SPEED, 0),
    "down_bytes_per_second": (lambda devices: devices.down.mean_bytes_per_second(), Purpose.BANDWIDTH, 0),
    "up_bytes_per_second": (lambda devices: devices.up.mean_bytes_per_second(), Purpose.BANDWIDTH, 1),
}


class TestSpeeds:
    def test_every_section_is_tested(self) -> None:
        names = {
            get_args(kind.model_fields["distribution"].annotation)[0]
            for kind in {*get_args(sections.SpeedSection), *get_args(sections.BandwidthSection)}
        }
        assert names == {*DRAWN, "file", "phones", "trace"}

    @pytest.mark.parametrize("key", KEYS)
    @pytest.mark.parametrize("name", DRAWN)
    def test_a_distribution_reaches_the_devices(self, name: str, key: str, population: Build) -> None:
        (distribution, parameters), (read, purpose, draw) = DRAWN[name], KEYS[key]
        table = ", ".join(f"{parameter} = {value}" for parameter, value in parameters.items())
        devices = population(f'population.{key}={{ distribution = "{name}", {table} }}', seed=5).devices
        assert read(devices).tolist() == distribution(20, **parameters, seed=5, purpose=purpose, draw=draw).tolist()

    def test_all_three_are_drawn_apart(self, population: Build) -> None:
        same = '{ distribution = "lognormal", median = 1.0, sigma = 1.0 }'
        devices = population(*(f"population.{key}={same}" for key in KEYS)).devices
        assert len({tuple(np.argsort(read(devices))) for read, *_ in KEYS.values()}) == 3

    @pytest.mark.parametrize("key", KEYS)
    @pytest.mark.parametrize("column", [None, "mine"])
    def test_a_column_of_a_file(self, column: str | None, key: str, population: Build, file: WriteFile) -> None:
        values = [float(i + 1) for i in range(20)]
        name = file(f"x,{column or key}\n" + "".join(f"9,{value}\n" for value in values))
        given = f", column = '{column}'" if column else ""
        devices = population(f"population.{key}={{ distribution = 'file', path = '{name}'{given} }}").devices
        assert KEYS[key][0](devices).tolist() == values

    def test_phones(self, population: Build, file: WriteFile) -> None:
        name = file(json.dumps([{"AI_Score": score} for score in ("100", "200", "400")]), "phones.json")
        devices = population(
            f"population.step_seconds={{ distribution = 'phones', path = '{name}', median = 3.0 }}"
        ).devices
        assert set(devices.step_seconds) == {6.0, 3.0, 1.5}

    def test_traces_up_and_down_are_independent(self, population: Build, tmp_path: Path) -> None:
        (tmp_path / "traces").mkdir()
        for rate in range(1, 9):
            (tmp_path / "traces" / f"{rate}.log").write_text(f"0 1\n10 {rate}\n")
        table = "{ distribution = 'trace', path = 'traces' }"
        devices = population(
            f"population.down_bytes_per_second={table}", f"population.up_bytes_per_second={table}"
        ).devices
        down, up = devices.down.mean_bytes_per_second(), devices.up.mean_bytes_per_second()
        assert set(down) | set(up) <= {rate * 125_000.0 for rate in range(1, 9)}
        assert len(set(down)) > 3
        assert down.tolist() != up.tolist()

    def test_measured_ones_by_name(
        self,
        population: Build,
        file: WriteFile,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
    ) -> None:
        ranking = tmp_path / file('[{"AI_Score": "100"}]', "phones.json")
        trace = load_traces(tmp_path / file("0 1\n10 8\n", "trace.log"))
        monkeypatch.setitem(published_measurements.PHONES, "ai-benchmark", lambda: ranking)
        monkeypatch.setitem(published_measurements.TRACES, "3g-oboe", lambda: trace)
        devices = population(
            "population.step_seconds={ distribution = 'phones', name = 'ai-benchmark', median = 3.0 }",
            "population.up_bytes_per_second={ distribution = 'trace', name = '3g-oboe' }",
        ).devices
        assert set(devices.step_seconds) == {3.0}
        assert set(devices.up.mean_bytes_per_second()) == {1e6}

    @pytest.mark.parametrize(
        ("key", "table", "part"),
        [
            ("step_seconds", "{ distribution = 'file', path = 'nowhere.csv' }", "nowhere.csv"),
            ("up_bytes_per_second", "{ distribution = 'trace', path = 'nowhere' }", "nowhere"),
            ("up_bytes_per_second", "{ distribution = 'lognormal', median = 5e-324, sigma = 1.0 }", "client"),
            ("down_bytes_per_second", "{ distribution = 'constant', value = 1e-7 }", "client 0 has 1e-07"),
            ("step_seconds", "{ distribution = 'constant', value = 1e300 }", "client 0 has 1e+300"),
            ("availability", "{ name = 'intervals', path = 'nowhere.csv' }", "nowhere.csv"),
        ],
    )
    def test_an_error_names_the_key(self, key: str, table: str, part: str, population: Build) -> None:
        line = error_line(lambda: population(f"population.{key}={table}"))
        assert line.startswith(f"population.{key}: ")
        assert part in line


class TestLossy:
    def test_so_many_of_the_clients(self, population: Build) -> None:
        one, other = (population(seed=seed).devices.loss_probability for seed in (1, 2))
        assert sorted(one) == sorted(other) == [0.0] * 14 + [0.5] * 6
        assert one.tolist() != other.tolist()

    def test_none_by_default(self, population: Build, tiny: dict[str, Any]) -> None:
        del tiny["population"]["lossy"]
        assert not population().devices.loss_probability.any()


def test_by_default_all_clients_are_equal(tiny: dict[str, Any], population: Build) -> None:
    tiny["population"] = {}
    made = population()
    assert {len(shard) for shard in made.shards} == {71, 72}
    assert made.devices.step_seconds.tolist() == [1.0] * 20
    assert made.devices.down.mean_bytes_per_second().tolist() == [1e6] * 20
    assert made.devices.up.mean_bytes_per_second().tolist() == [1e6] * 20


POOLED = [np.array([7, 2]), np.array([5]), np.array([0, 9, 4])]


@pytest.fixture
def three() -> Population:
    devices = Devices(
        step_seconds=np.array([1.0, 2.0, 6.0]),
        down=ConstantLink(np.full(3, 10.0)),
        up=ConstantLink(np.full(3, 10.0)),
        loss_probability=np.array([0.0, 1.0, 0.5]),
        availability=availability.Alternating(3, 10.0, np.arange(3)),
        when_away="lose",
    )
    return Population(POOLED, devices, [np.array([1]), np.array([3]), np.array([6, 8])])


def test_a_pooled_client_holds_what_all_hold(three: Population) -> None:
    (shard,) = pool_clients(three, 2).shards
    assert shard.tolist() == [0, 2, 4, 5, 7, 9]
    assert shard.dtype == POOLED[0].dtype


def test_a_pool_leaves_the_held_out_examples_with_their_clients(three: Population) -> None:
    assert pool_clients(three, 2).held_out == three.held_out


@pytest.mark.parametrize(("cohort", "seconds"), [(1, 3.0), (2, 1.5), (3, 1.0)])
def test_a_pooled_round_takes_as_long_as_a_mean_visit(cohort: int, seconds: float, three: Population) -> None:
    assert pool_clients(three, cohort).devices.step_seconds.tolist() == [seconds]


def test_pooling_more_clients_than_there_are_is_refused(three: Population) -> None:
    with pytest.raises(ValueError, match="cohort must be at most the number of clients, 3, got 4"):
        pool_clients(three, 4)


def test_a_pooled_client_is_always_available_and_loses_nothing(three: Population) -> None:
    devices = pool_clients(three, 2).devices
    assert devices.loss_probability.tolist() == [0.0]
    for seconds in (0.0, 5.0, 10.0, 15.0):
        assert devices.availability.next_available(0, seconds) == seconds
        assert devices.availability.next_offline(0, seconds) == float("inf")
