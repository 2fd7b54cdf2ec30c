import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from offbeat_core.errors import OffbeatError

from offbeat.config.given_objects import Given
from offbeat.config.population_sections import PopulationSection
from offbeat.population.availability import Always
from offbeat.worlds.population import build_population


@pytest.fixture
def given(digits):
    """Return a function that returns devices of three clients with given values."""

    def make(**values):
        given = {key: Given(value, "given in Python") for key, value in values.items()}
        return build_population(PopulationSection(clients=3, **given), digits, 1).devices

    return make


@pytest.mark.parametrize(
    "values",
    [
        [1, 2.5, 4],
        np.array([1, 2.5, 4]),
        torch.tensor([1, 2.5, 4], dtype=torch.bfloat16, requires_grad=True),
        pd.Series([1, 2.5, 4], dtype="Float64", index=[7, 8, 9]),
        pa.array([1, 2.5, 4]),
        lambda client: [1, 2.5, 4][client],
    ],
)
def test_speeds_are_by_client(values, given):
    assert given(step_seconds=values).step_seconds.tolist() == [1.0, 2.5, 4.0]


def test_bandwidths_are_by_client(given):
    devices = given(up_bytes_per_second=[10, 20, 40])
    assert [devices.up.transfer_end(client, 1.0, 40.0) for client in range(3)] == [5.0, 3.0, 2.0]
    assert devices.down.mean_bytes_per_second().tolist() == given().down.mean_bytes_per_second().tolist()


def test_traces_are_by_client_and_repeat(given):
    # 100 bytes a second for two seconds, then nothing for one.
    link = given(down_bytes_per_second=lambda client: [(5.0, 100.0 * (client + 1)), (7.0, 0.0), (8.0, 0.0)]).down
    assert link.transfer_end(0, 0.0, 150.0) == pytest.approx(1.5)
    assert link.transfer_end(0, 0.0, 250.0) == pytest.approx(3.5)
    assert link.transfer_end(1, 0.0, 150.0) == pytest.approx(0.75)


@pytest.mark.parametrize("as_function", [True, False])
def test_intervals_are_by_client(as_function, given):
    intervals = [[(0.0, 10.0), (20.0, 30.0)], [], np.array([[5.0, 6.0]])]
    availability = given(availability=intervals.__getitem__ if as_function else intervals).availability
    assert availability.next_available(0, 12.0) == 20.0
    assert availability.next_offline(0, 3.0) == 10.0
    assert availability.next_available(1, 0.0) == math.inf
    assert availability.next_available(2, 0.0) == 5.0


def test_an_availability_is_taken_as_it_is(given):
    always = Always()
    assert given(availability=always).availability is always


def fails(client):
    raise KeyError(client)


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"step_seconds": [1, 2]}, "population.step_seconds: has 2 values, but there are 3 clients"),
        ({"step_seconds": [1, 0, 2]}, "population.step_seconds: client 1 has 0.0, but needs a finite number above 0"),
        ({"step_seconds": [1, 2, math.nan]}, "population.step_seconds: client 2 has nan, but needs"),
        ({"step_seconds": [1, 2, 1e16]}, r"population.step_seconds: client 2 has 1e\+16, but at most"),
        ({"step_seconds": [1, 2, "x"]}, "population.step_seconds: client 2 has 'x', but needs a number, or rows"),
        ({"step_seconds": [1, "2", 3]}, "client 1 has '2', but needs a number"),
        ({"step_seconds": lambda client: client > 1 or 1.0}, "client 2 has True, but needs a number"),
        ({"step_seconds": np.array([1, 2, 3 + 1j])}, r"client 0 has np.complex128\(1\+0j\), but needs a number"),
        ({"step_seconds": np.ma.masked_array([1, 2, 3], [0, 1, 0])}, "client 1 has masked, but needs a number"),
        ({"step_seconds": pd.Series([1, None, 3], dtype="Int64")}, "client 1 has <NA>, but needs a number"),
        ({"step_seconds": pa.array([1, None, 3])}, "client 1 has None, but needs a number"),
        ({"step_seconds": pd.to_timedelta([1, 2, 3], unit="s")}, r"client 0 has Timedelta\(.*\), but needs a number"),
        ({"up_bytes_per_second": np.array([1, 2, 3], "m8[s]")}, r"client 0 has np.timedelta64\(1,'s'\), but needs"),
        ({"availability": lambda _: np.ma.masked_array([(0, 4)], [[0, 1]])}, "client 0 has masked_array.* rows of"),
        ({"availability": lambda _: [("0", "4")]}, r"client 0 has \[\('0', '4'\)\], but needs a number, or rows of"),
        ({"step_seconds": fails}, "population.step_seconds: it failed: KeyError: 0"),
        (
            {"up_bytes_per_second": [1, 2, 1e-7]},
            "population.up_bytes_per_second: client 2 has 1e-07, but needs at least",
        ),
        ({"up_bytes_per_second": lambda _: [(0, 1)]}, "client 0's trace must be two or more rows"),
        ({"up_bytes_per_second": lambda _: [(0, 1), (0, 1)]}, "client 0's trace must have rising seconds"),
        ({"up_bytes_per_second": lambda _: [(0, 0), (1, 1)]}, "client 0's trace must have .* bytes per second"),
        ({"up_bytes_per_second": lambda _: [(0, 1e308), (100, 0)]}, "client 0 carries inf bytes"),
        ({"up_bytes_per_second": lambda _: [(0, 1e6), (1e-310, 0)]}, "client 0 carries .*: it must last at least 1 ms"),
        ({"up_bytes_per_second": lambda _: [(0, 1e-3), (10, 0)]}, "client 0 carries 0.01 bytes"),
        ({"availability": [[], [], []]}, "population.availability: no client is ever available"),
        ({"availability": lambda _: [1, 2]}, "client 0's intervals must be rows of start and end"),
        ({"availability": lambda _: [(2, 1)]}, "client 0's intervals must be in order"),
        ({"availability": lambda _: [(1, 1)]}, "client 0's intervals must be in order"),
        ({"availability": lambda _: [(-1, 1)]}, "client 0's intervals must be in order"),
        ({"availability": lambda _: [(0, 2), (1, 3)]}, "client 0's intervals must be in order"),
    ],
)
def test_a_mistake_is_one_line_that_names_key_and_client(values, line, given):
    with pytest.raises(OffbeatError, match=line):
        given(**values)
