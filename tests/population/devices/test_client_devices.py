import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from offbeat_core.randomness import Purpose

from offbeat.population.availability import Always
from offbeat.population.devices import client_devices
from offbeat.population.devices.bandwidth_traces import Trace
from offbeat.population.devices.client_devices import ConstantLink, Devices, TraceLink, lossy, random_traces
from offbeat.uniform_numbers import uniform


def trace(durations, rates):
    return Trace("t", np.append(0.0, np.cumsum(durations)), np.array(rates, np.float64))


@st.composite
def links(draw):
    """A link with one client, its largest bandwidth, and the bytes of a repetition."""
    if draw(st.booleans()):
        rate = draw(st.floats(1.0, 1e7))
        return ConstantLink(np.array([rate])), rate, 0.0
    count = draw(st.integers(1, 6))
    durations = draw(st.lists(st.floats(0.01, 100), min_size=count, max_size=count))
    rates = draw(st.lists(st.just(0.0) | st.floats(1.0, 1e7), min_size=count, max_size=count).filter(any))
    offset = draw(st.floats(0, 1) | st.just(0.0)) * sum(durations)
    total = float(np.dot(durations, rates))
    return TraceLink([trace(durations, rates)], np.array([0]), np.array([offset])), max(rates), total


TIMES = st.floats(0, 1e7) | st.integers(0, 100).map(float)
SIZES = st.floats(1.0, 1e10)


def tolerance(size, time, rate, total):
    """Return the tolerance of a transferred size.

    It is 10⁻⁹ of the size, plus the rounding errors of the times and of the bytes of one repetition.
    """
    return 1e-9 * size + 4 * rate * math.ulp(2 * time + 100) + 8 * math.ulp(total)


@given(links(), TIMES, SIZES)
def test_the_end_of_a_transfer_is_when_all_bytes_are_through(case, start, size):
    link, rate, total = case
    end = link.transfer_end(0, start, size)
    assert type(end) is float
    assert end >= start
    assert link.transferred(0, start, end) == pytest.approx(size, rel=0, abs=tolerance(size, end, rate, total))
    # Not later: a little earlier, it is not complete.
    earlier = start + (end - start) * (1 - 1e-6)
    slack = tolerance(size, end, rate, total)
    assert link.transferred(0, start, earlier) <= size + slack


@given(links(), TIMES, SIZES, SIZES)
def test_transfers_add_up_and_larger_ones_end_later(case, start, one, other):
    link, rate, total = case
    assert link.transferred(0, start, start) == 0
    middle = link.transfer_end(0, start, one)
    end = link.transfer_end(0, middle, other)
    slack = tolerance(one + other, end, rate, total)
    assert link.transferred(0, start, end) == pytest.approx(one + other, rel=0, abs=slack)
    assert link.transferred(0, start, middle) + link.transferred(0, middle, end) == pytest.approx(
        link.transferred(0, start, end), rel=0, abs=slack
    )
    both = link.transfer_end(0, start, one + other)
    assert both >= middle - 4 * math.ulp(middle)
    assert link.transferred(0, start, both) == pytest.approx(one + other, rel=0, abs=slack)


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 9)), min_size=1, max_size=5), st.data())
def test_equals_a_sum_over_every_instant(segments, data):
    """Segments of whole seconds and times of whole eighths: the bandwidth of each eighth is known and added up."""
    durations, rates = zip(*segments, strict=True)
    if not any(rates):
        return
    eighths = np.repeat(rates, np.array(durations) * 8) / 8
    offset = data.draw(st.integers(0, len(eighths) * 2))
    start = data.draw(st.integers(0, 200))
    stop = start + data.draw(st.integers(0, 200))
    link = TraceLink([trace(durations, rates)], np.array([0]), np.array([offset / 8]))
    flow = eighths[(offset + np.arange(start, start + 200 * len(eighths))) % len(eighths)]
    expected = flow[: stop - start].sum()
    assert link.transferred(0, start / 8, stop / 8) == pytest.approx(expected, abs=1e-9)
    if expected > 0:
        # Complete in the first eighth by whose end as much is through; all of it is, at that end.
        first = int(np.searchsorted(np.cumsum(flow), expected - 1e-9)) + 1
        assert link.transfer_end(0, start / 8, expected) == pytest.approx((start + first) / 8, abs=1e-9)


@pytest.mark.parametrize(
    ("start", "size", "end"),
    [
        (0.0, 50.0, 0.5),  # 100 a second from 0 to 1, none to 3, 10 a second to 5
        (0.0, 100.0, 1.0),
        (0.0, 110.0, 4.0),
        (2.0, 10.0, 4.0),
        (0.0, 120.0, 5.0),
        (0.0, 121.0, 5.01),
        (4.0, 10.0 + 3 * 120 + 50, 5.0 + 15 + 0.5),
        (1.0, 120.0, 6.0),
        (2.0, 20 + 100.0, 6.0),
        (1e6, 1.2e7 + 50, 1e6 + 5e5 + 0.5),
        (2.0, 1e-300, 2.0),  # too small to be seen, but not complete before it begins
        (2.0, 0.0, 2.0),
    ],
)
def test_transfers_by_hand(start, size, end):
    link = TraceLink([trace([1, 2, 2], [100, 0, 10])], np.array([0]), np.array([0.0]))
    assert link.transfer_end(0, start, size) == pytest.approx(end, rel=1e-12)


def test_a_transfer_that_ends_with_the_bandwidth_does_not_wait_for_the_repetition():
    link = TraceLink([trace([1, 9], [100, 0])], np.array([0]), np.array([0.0]))
    assert link.transfer_end(0, 0.0, 100.0) == 1.0
    assert link.transfer_end(0, 0.0, 300.0) == 21.0
    assert link.transfer_end(0, 1.0, 100.0) == 11.0


def test_a_segment_is_not_longer_than_it_is():
    """Its 0.9e-8 bytes after 10⁸ are rounded to the next float, 1.5e-8 higher."""
    link = TraceLink([trace([1, 1, 1], [1e8, 0.9e-8, 1e8])], np.array([0]), np.array([0.0]))
    assert link.transfer_end(0, 0.0, math.nextafter(1e8, math.inf)) == 2.0


def test_clients_have_their_own_traces_and_places():
    both = [trace([1, 1], [10, 30]), trace([4], [5])]
    link = TraceLink(both, np.array([1, 0, 0]), np.array([2.0, 0.0, 1.0]))
    assert [link.transfer_end(client, 0.0, 10.0) for client in range(3)] == [2.0, 1.0, pytest.approx(1 / 3)]
    assert [link.transferred(client, 0.0, 1.0) for client in range(3)] == [5.0, 10.0, 30.0]
    assert link.mean_bytes_per_second().tolist() == [5.0, 20.0, 20.0]


def test_constant_link_by_hand():
    link = ConstantLink(np.array([100.0, 50.0]))
    assert [link.transfer_end(client, 1.0, 200.0) for client in (0, 1)] == [3.0, 5.0]
    assert [link.transferred(client, 1.0, 4.0) for client in (0, 1)] == [300.0, 150.0]
    assert link.mean_bytes_per_second().tolist() == [100.0, 50.0]


@pytest.mark.parametrize("draw", [0, 2])
def test_random_traces_follow_the_documented_numbers(draw):
    three = [trace([length], [rate]) for length, rate in ((1, 10), (5, 20), (50, 30))]
    link = random_traces(three, 3000, seed=6, draw=draw)
    chosen = np.floor(uniform(6, Purpose.TRACE, np.arange(3000), draw=draw) * 3).astype(int)
    np.testing.assert_allclose(link.mean_bytes_per_second(), np.array([10, 20, 30])[chosen])
    assert np.bincount(chosen) == pytest.approx([1000] * 3, abs=4 * math.sqrt(3000 * 2 / 9))


@pytest.mark.parametrize("draw", [0, 2])
def test_random_places_within_the_trace(draw):
    two = [trace([1, 3], [0, 100]), trace([10, 30], [0, 100])]
    link = random_traces(two, 500, seed=6, draw=draw)
    choice = uniform(6, Purpose.TRACE, np.arange(500), draw=draw)
    place = uniform(6, Purpose.TRACE, np.arange(500), draw=draw + 1) * np.where(choice < 0.5, 4, 40)
    wait = np.maximum(np.where(choice < 0.5, 1, 10) - place, 0)  # until the bandwidth begins
    assert [link.transfer_end(client, 0.0, 1e-6) for client in range(500)] == pytest.approx(wait.tolist(), abs=1e-6)


@pytest.mark.parametrize(
    ("clients", "fraction", "count"), [(100, 0.29, 29), (7, 0.5, 4), (10, 0.0, 0), (10, 1.0, 10), (1000, 0.123, 123)]
)
def test_lossy_clients_are_exactly_so_many(clients, fraction, count):
    probabilities = lossy(clients, fraction=fraction, probability=0.4, seed=0)
    assert probabilities.shape == (clients,)
    assert np.sum(probabilities == 0.4) == count
    assert np.sum(probabilities == 0.0) == clients - count


def test_lossy_clients_are_a_random_choice_by_the_seed():
    chosen = np.stack([lossy(20, fraction=0.5, probability=1.0, seed=seed) for seed in range(400)])
    np.testing.assert_allclose(chosen.mean(axis=0), 0.5, atol=4 * math.sqrt(0.25 / 400))
    np.testing.assert_array_equal(chosen[7], lossy(20, fraction=0.5, probability=1.0, seed=7))


@pytest.fixture
def three() -> Devices:
    link = ConstantLink(np.ones(3))
    return Devices(np.ones(3), link, link, np.array([0.0, 0.3, 1.0]), Always(), "pause")


@pytest.mark.parametrize(("client", "probability"), [(0, 0.0), (1, 0.3), (2, 1.0)])
def test_the_fate_of_a_visit_is_the_documented_number(three, client, probability):
    lost = [three.visit_is_lost(5, client, visit) for visit in range(1000)]
    np.testing.assert_array_equal(lost, uniform(5, Purpose.LOSS, client, np.arange(1000)) < probability)


def test_a_reliable_client_loses_nothing_even_at_the_smallest_number(three, monkeypatch):
    monkeypatch.setattr(client_devices, "number", lambda *args: 0.0)
    assert [three.visit_is_lost(5, client, 0) for client in range(3)] == [False, True, True]
