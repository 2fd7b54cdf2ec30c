from dataclasses import replace

import numpy as np
import pytest

from offbeat.report.population_plots import population_figure, write_population
from tests.report.example_population import Spells
from tests.report.example_population import example as worked_out_by_hand


class Turns:
    """Client c is available for ``length`` seconds from c · ``length`` on, and again every ``period``."""

    def __init__(self, length, period):
        self.length, self.period = length, period

    def next_available(self, client, seconds):
        since = (seconds - client * self.length) % self.period
        return seconds if since < self.length else seconds + self.period - since

    def next_offline(self, client, seconds):
        return seconds + self.length - (seconds - client * self.length) % self.period


def example(clients=3, classes=4, availability=None, **changes):
    counts = np.arange(clients * max(classes, 1)).reshape(clients, -1) % 7
    values = {
        "label_counts": counts if classes else None,
        "examples": counts.sum(axis=1),
        "steps": np.full(clients, 10),
        "step_seconds": np.linspace(1, 2, clients),
        "down_bytes_per_second": np.full(clients, 1e6),
        "up_bytes_per_second": np.full(clients, 1e5),
        "model_bytes": 200_000,
        "upload_bytes": 200_000,
        "availability": availability or Turns(100.0, 300.0),
    }
    return replace(worked_out_by_hand(), **{**values, **changes})


def panel(statistics, heading):
    return next(axes for axes in population_figure(statistics).axes if axes.get_ylabel().endswith(heading))


def image(axes):
    return np.asarray(axes.images[0].get_array())


def heights(axes):
    return [[bar.get_height() for bar in bars] for bars in axes.containers]


def test_the_same_population_gives_the_same_picture(tmp_path):
    path = write_population(example(), tmp_path / "new" / "folder")
    assert path == tmp_path / "new" / "folder" / "population.png"
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    assert [file.name for file in path.parent.iterdir()] == ["population.png"]
    assert content == write_population(example(), tmp_path).read_bytes()
    assert b"matplotlib" not in content.lower()


def test_the_heat_map_sorts_clients_by_their_commonest_label():
    counts = np.array([[0, 1, 3], [5, 0, 0], [0, 9, 1], [6, 2, 2], [0, 0, 0]])
    statistics = example(5, label_counts=counts, examples=counts.sum(axis=1))
    # Label 0: clients 1 (all of it), 3 (0.6) and 4 (nothing at all); label 1: client 2; label 2: client 0.
    expected = [[1, 0, 0], [0.6, 0.2, 0.2], [0, 0, 0], [0, 0.9, 0.1], [0, 0.25, 0.75]]
    assert image(panel(statistics, "label")) == pytest.approx(np.transpose(expected))
    assert heights(panel(statistics, "examples")) == [[5, 10, 0, 10, 4]]
    assert panel(statistics, "label").get_xlabel() == "5 clients, sorted by their commonest label"


def test_a_hundred_labels_are_a_heat_map_and_more_are_counted():
    assert image(panel(example(classes=100), "label")).shape == (100, 3)
    counts = np.zeros((3, 101), np.int64)
    counts[0, :2] = 4
    counts[1, 100] = 9
    counts[2, :] = 1
    statistics = example(label_counts=counts, examples=counts.sum(axis=1))
    labels = panel(statistics, "labels")
    assert not labels.images
    held, effective = heights(labels)  # most examples first: clients 2, 1, 0
    assert held == [101, 1, 2]
    assert effective == pytest.approx([101, 1, 2])
    assert heights(panel(statistics, "examples")) == [[101, 9, 8]]
    assert labels.get_xlabel() == "3 clients, most examples first"


def test_without_classes_there_are_examples_only():
    statistics = example(classes=0, examples=np.array([3, 9, 5]))
    assert len(population_figure(statistics).axes) == len(population_figure(example()).axes) - 1
    assert heights(panel(statistics, "examples")) == [[9, 5, 3]]
    assert panel(statistics, "examples").get_xlabel() == "3 clients, most examples first"


def test_the_visits_are_counted_where_they_belong():
    # 0.2 s down, 10 s of steps, 2 s up; one client is ten times slower.
    statistics = example(step_seconds=np.array([1.0, 1.0, 10.0]))
    axes = next(axes for axes in population_figure(statistics).axes if axes.get_xscale() == "log")
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == [
        "download\nmedian 0.2 s",
        "local steps\nmedian 10.0 s",
        "upload\nmedian 2.0 s",
        "visit\nmedian 12.2 s",
    ]
    bars = [patch.get_data() for patch in axes.patches]
    for row, (values, times) in enumerate(zip(bars, ([0.2], [10, 100], [2.0], [12.2, 102.2]), strict=True)):
        filled = np.flatnonzero(values.values > -row)
        assert len(filled) == len(times)
        for bin_, time in zip(filled, times, strict=True):
            assert values.edges[bin_] <= time <= values.edges[bin_ + 1]
    assert [line.get_xdata()[0] for line in axes.lines] == pytest.approx([0.2, 10, 2, 12.2])
    ticks = [label.get_text() for label in axes.get_xticklabels()]
    assert ticks == ["1 s", "10 s", "1 min"]


def test_availability_over_time():
    # At 1, 3, …, 999 s; the client that is available longest comes first.
    statistics = example(availability=Spells(*[[(0.0, end)] for end in (300.0, 900.0, 600.0)]))
    raster = panel(statistics, "3 clients")
    seen = np.arange(1, 1000, 2)
    assert image(raster).tolist() == [(seen < end).tolist() for end in (900, 600, 300)]
    assert raster.get_xlim() == pytest.approx((0, 1000 / 60))
    assert [label.get_text() for label in raster.get_yticklabels()] == ["most available", "least available"]
    count = panel(statistics, "available clients")
    values, edges, _ = count.patches[0].get_data()
    assert values == pytest.approx(np.repeat([3, 2, 1, 0], [150, 150, 150, 50]))
    assert edges[[0, -1]] == pytest.approx([0, 1000 / 60])
    assert count.get_title(loc="right") == "mean 60.0 %, 0.0 % to 100.0 %"


def test_of_many_clients_a_hundred_are_drawn():
    statistics = example(10_000, availability=Turns(1.0, 7919.0))
    assert image(panel(statistics, "label")).shape == (4, 100)
    raster = panel(statistics, "10,000 clients")
    assert raster.get_ylabel() == "100 of 10,000 clients"
    assert image(raster).shape == (100, 500)
    count = panel(statistics, "available clients")
    assert count.get_title(loc="right").endswith("; from 1,000 of the clients")
    assert count.get_ylim()[1] == pytest.approx(10_500)
    assert panel(statistics, "label").get_xlabel().startswith("100 of 10,000 clients")


def test_titles_are_taken_as_they_are_but_cut(tmp_path):
    # One client, always available, whose visits take no time.
    title = "costs $5 & $6 {x} " + 300 * "y"
    statistics = example(1, title=title, steps=np.zeros(1, int), model_bytes=0, upload_bytes=0)
    statistics = replace(statistics, availability=Turns(100.0, 100.0))
    write_population(statistics, tmp_path)
    assert population_figure(statistics).get_suptitle() == f"{title[:69]}…: 1 client (seed 7)"
    assert panel(statistics, "available clients").get_title(loc="right") == "always 100.0 %"
