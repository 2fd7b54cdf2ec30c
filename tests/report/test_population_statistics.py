"""Statistics of a population."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from offbeat_core.errors import OffbeatError

from offbeat.data.dataset import Dataset
from offbeat.report.population_statistics import effective_labels, evenly, population_statistics
from offbeat.worlds.population import build_population
from tests.report.example_population import ALWAYS, Spells, example


def test_of_the_first_seed(experiment, digits):
    here = experiment("seeds=[7, 1]", "local.steps=9")
    statistics = population_statistics(here, digits)
    population = build_population(here.population, digits, 7)
    assert (statistics.title, statistics.seed, statistics.steps.tolist()) == ("tiny", 7, [9] * 20)
    assert statistics.examples.tolist() == [len(shard) for shard in population.shards]
    assert statistics.label_counts is not None
    assert statistics.label_counts.shape == (20, 10)
    assert statistics.label_counts.sum(axis=0).tolist() == np.bincount(digits.train_labels).tolist()
    assert statistics.label_counts[3].tolist() == [
        int((digits.train_labels[population.shards[3]] == label).sum()) for label in range(10)
    ]
    devices = population.devices
    assert statistics.step_seconds.tolist() == devices.step_seconds.tolist()
    assert statistics.down_bytes_per_second.tolist() == [1e5] * 20
    assert statistics.up_bytes_per_second.tolist() == devices.up.mean_bytes_per_second().tolist()
    assert statistics.loss_probability.tolist() == devices.loss_probability.tolist()
    assert statistics.model_bytes == statistics.upload_bytes == 4 * 650
    assert statistics.horizon_seconds == 60.0


def test_the_steps_of_epochs_follow_from_the_clients_examples(experiment, digits):
    statistics = population_statistics(experiment("local.epochs=2", "local.batch_size=8"), digits)
    assert statistics.steps.tolist() == [2 * -(-examples // 8) for examples in statistics.examples.tolist()]
    assert len(set(statistics.steps.tolist())) > 1
    seconds = statistics.steps * statistics.step_seconds
    assert statistics.visit_parts["local steps"].tolist() == seconds.tolist()


def test_without_an_end_in_seconds_the_horizon_is_a_day(experiment, digits):
    assert population_statistics(experiment("stop={ versions = 3 }"), digits).horizon_seconds == 24 * 3600


def test_without_classes_there_are_no_label_counts(experiment, digits):
    targets = digits.train_labels.astype(np.float32), digits.test_labels.astype(np.float32)
    dataset = Dataset("targets", digits.train_inputs, targets[0], digits.test_inputs, targets[1], None)
    statistics = population_statistics(experiment("model.loss=mse", "population.partition={ name = 'iid' }"), dataset)
    assert statistics.label_counts is None
    assert statistics.model_bytes == 4 * 65


def test_an_error_names_the_key(experiment, digits):
    with pytest.raises(OffbeatError, match=r"population\.partition: 1434 clients"):
        population_statistics(experiment("population.clients=1434"), digits)


def test_the_parts_of_a_visit():
    statistics = example()
    assert {name: values.tolist() for name, values in statistics.visit_parts.items()} == {
        "download": [1, 1, 2, 1],
        "local steps": [2, 4, 6, 40],
        "upload": [2, 2, 4, 2],
    }
    assert statistics.visit_seconds.tolist() == [5, 7, 12, 43]


def test_uploads_are_as_short_as_they_are_compressed(experiment, digits):
    statistics = population_statistics(experiment("local.compression={ name = 'sign' }"), digits)
    assert statistics.model_bytes == 4 * 650
    # A header, a scale, and a bit for each of the 650 parameters.
    assert statistics.upload_bytes == 16 + 4 + 82
    np.testing.assert_allclose(statistics.visit_parts["upload"] * statistics.up_bytes_per_second, 16 + 4 + 82)


def test_presence_is_half_open_and_includes_the_remaining_stay():
    presence = example([[(3.0, 5.0), (8.0, 12.0)], [(998.0, 1003.0)], [(4.0, math.inf)], []]).presence
    assert presence.clients.tolist() == [0, 1, 2, 3]
    assert presence.times.tolist() == list(range(1, 1000, 2))
    assert presence.stays[0, :8].tolist() == [0, 2, 0, 0, 3, 1, 0, 0]
    assert not presence.stays[0, 8:].any()
    assert np.flatnonzero(presence.stays[1]).tolist() == [499]
    assert presence.stays[1, 499] == 4
    assert presence.stays[2].tolist() == [0, 0] + 498 * [math.inf]
    assert not presence.is_available[3].any()
    assert presence.share[[0, 1, 2, 499]].tolist() == [0, 0.25, 0.25, 0.5]


@given(st.lists(st.integers(0, 4000), unique=True, max_size=60).map(sorted))
def test_presence_is_that_of_each_moment(ends):
    """Compared with each moment by itself; the moments are 2, 6, 10, …, so intervals may fall between them."""
    spells = list(zip(ends[::2], ends[1::2], strict=False))
    availability = Spells(spells)
    presence = example([spells], horizon=2000.0, availability=availability).presence
    expected = [next((end - t for begin, end in spells if begin <= t < end), 0) for t in presence.times]
    assert presence.stays[0].tolist() == expected
    assert availability.calls <= 3 * len(spells) + 2


def test_the_number_of_calls_is_bounded():
    class Flicker:
        calls = 0

        def next_available(self, client, seconds):
            self.calls += 1
            return seconds if seconds % 0.01 < 0.005 else (seconds // 0.01 + 1) * 0.01

        def next_offline(self, client, seconds):
            self.calls += 1
            return math.nextafter(seconds, math.inf)

    flicker = Flicker()
    assert example(availability=flicker).presence.stays.shape == (4, 500)
    assert flicker.calls <= 4 * (500 * 2 + 1)


def test_presence_is_that_of_a_thousand_of_many_clients():
    number = 2500
    everyone = Spells(*number * [ALWAYS])
    presence = example(examples=np.ones(number, np.int64), availability=everyone).presence
    assert everyone.calls == 3 * 1000
    assert presence.clients[[0, -1]].tolist() == [0, number - 1]
    # 10 runs of 100 adjacent ones, (2500 − 100) / 9 from start to start.
    starts = presence.clients[::100]
    assert presence.clients.tolist() == [start + i for start in starts.tolist() for i in range(100)]
    assert set(np.diff(starts)) == {266, 267}


@pytest.mark.parametrize("number", [1000, 1003])
def test_presence_has_a_thousand_different_clients(number):
    everyone = Spells(*number * [ALWAYS])
    presence = example(examples=np.ones(number, np.int64), availability=everyone).presence
    assert len(set(presence.clients.tolist())) == len(presence.clients) == 1000


def test_evenly():
    assert evenly(np.array([9, 3, 5]), 3).tolist() == [9, 3, 5]
    assert evenly(np.array([9, 3, 5, 7, 1]), 3).tolist() == [9, 5, 1]


def test_the_effective_number_of_labels():
    counts = np.array([[5, 0, 0, 0], [2, 2, 2, 2], [0, 1, 3, 0], [0, 0, 0, 0]])
    # exp(¼ ln 4 + ¾ ln ⁴⁄₃) = 4 / 3^¾
    assert effective_labels(counts) == pytest.approx([1, 4, 4 / 3**0.75, 0])


@pytest.mark.parametrize("horizon", [0.0, -1.0, math.inf, math.nan])
def test_a_horizon_must_be_positive_and_finite(horizon):
    with pytest.raises(ValueError, match="horizon_seconds is"):
        example(horizon=horizon)
