import io
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from offbeat.report.population import table as population_report
from offbeat.report.population.table import (
    PopulationView,
    effective_labels,
    evenly,
    how_many,
    population_table,
    seconds,
)


class Spells:
    """Each client is there in its intervals [from, until), which are ascending and do not touch."""

    def __init__(self, *spells):
        self.spells = spells
        self.calls = 0

    def next_available(self, client, seconds):
        self.calls += 1
        return next((max(begin, seconds) for begin, end in self.spells[client] if seconds < end), math.inf)

    def next_offline(self, client, seconds):
        self.calls += 1
        return next(end for begin, end in self.spells[client] if begin <= seconds < end)


ALWAYS = [(0.0, math.inf)]


def a_view(spells=(ALWAYS, ALWAYS, ALWAYS, ALWAYS), horizon=1000.0, **changes):
    """Visits of 1 + 2 + 2, 1 + 4 + 2, 2 + 6 + 4 and 1 + 40 + 2 seconds; looked at after 1, 3, 5, … 999 s."""
    number = len(spells)
    view = PopulationView(
        title="quick",
        seed=7,
        label_counts=np.array([[5, 0, 0, 0], [2, 2, 2, 2], [0, 1, 3, 0], [10, 0, 10, 0]])[:number],
        examples=np.array([5, 8, 4, 20])[:number],
        steps=2,
        step_seconds=np.array([1.0, 2.0, 3.0, 20.0])[:number],
        down_bytes_per_second=np.array([1000.0, 1000.0, 500.0, 1000.0])[:number],
        up_bytes_per_second=np.array([500.0, 500.0, 250.0, 500.0])[:number],
        model_bytes=1000,
        loss_probability=np.zeros(number),
        availability=Spells(*spells),
        horizon_seconds=horizon,
    )
    return replace(view, **changes)


def shown(view):
    """What the terminal shows: the text as one line, and the cells of each row by its name."""
    console = Console(file=io.StringIO(), width=200)
    table = population_table(view)
    console.print(table)
    columns = [list(column.cells) for column in table.columns]
    rows = {name.strip(): cells for name, *cells in zip(*columns, strict=True)}
    return " ".join(console.file.getvalue().split()), rows


def test_the_parts_of_a_visit():
    view = a_view()
    assert {name: values.tolist() for name, values in view.visit_parts.items()} == {
        "download": [1, 1, 2, 1],
        "local steps": [2, 4, 6, 40],
        "upload": [2, 2, 4, 2],
    }
    assert view.visit_seconds.tolist() == [5, 7, 12, 43]


def test_presence_is_half_open_and_tells_how_long_a_client_stays():
    presence = a_view([[(3.0, 5.0), (8.0, 12.0)], [(998.0, 1003.0)], [(4.0, math.inf)], []]).presence
    assert presence.clients.tolist() == [0, 1, 2, 3]
    assert presence.times.tolist() == list(range(1, 1000, 2))
    assert presence.stays[0, :8].tolist() == [0, 2, 0, 0, 3, 1, 0, 0]
    assert not presence.stays[0, 8:].any()
    assert np.flatnonzero(presence.stays[1]).tolist() == [499]
    assert presence.stays[1, 499] == 4
    assert presence.stays[2].tolist() == [0, 0] + 498 * [math.inf]
    assert not presence.there[3].any()
    assert presence.share[[0, 1, 2, 499]].tolist() == [0, 0.25, 0.25, 0.5]


@given(st.lists(st.integers(0, 4000), unique=True, max_size=60).map(sorted))
def test_presence_is_that_of_each_moment(ends):
    """Against a look at each moment by itself; the moments are 2, 6, 10, …; spells may fall between them."""
    spells = list(zip(ends[::2], ends[1::2], strict=False))
    availability = Spells(spells)
    presence = a_view([spells], horizon=2000.0, availability=availability).presence
    expected = [next((end - t for begin, end in spells if begin <= t < end), 0) for t in presence.times]
    assert presence.stays[0].tolist() == expected
    assert availability.calls <= 3 * len(spells) + 2


def test_the_work_is_bounded_however_often_clients_come_and_go():
    class Flicker:
        calls = 0

        def next_available(self, client, seconds):
            self.calls += 1
            return seconds if seconds % 0.01 < 0.005 else (seconds // 0.01 + 1) * 0.01

        def next_offline(self, client, seconds):
            self.calls += 1
            return math.nextafter(seconds, math.inf)

    flicker = Flicker()
    assert a_view(availability=flicker).presence.stays.shape == (4, 500)
    assert flicker.calls <= 4 * (500 * 2 + 1)


def test_presence_looks_at_a_thousand_clients_of_many():
    number = 2500
    asked = set()

    class There:
        def next_available(self, client, seconds):
            asked.add(client)
            return seconds

        def next_offline(self, client, seconds):
            return math.inf

    presence = a_view(examples=np.ones(number, np.int64), availability=There()).presence
    assert len(asked) == 1000
    assert sorted(asked) == presence.clients.tolist()
    assert presence.clients[[0, -1]].tolist() == [0, number - 1]
    # 10 runs of 100 adjacent ones, (2500 − 100) / 9 from start to start.
    starts = presence.clients[::100]
    assert presence.clients.tolist() == [start + i for start in starts.tolist() for i in range(100)]
    assert set(np.diff(starts)) == {266, 267}


def test_presence_looks_at_all_of_a_thousand_clients():
    everyone = Spells(*1000 * [ALWAYS])
    presence = a_view(examples=np.ones(1000, np.int64), availability=everyone).presence
    assert presence.clients.tolist() == list(range(1000))


def test_no_client_is_looked_at_twice():
    everyone = Spells(*1003 * [ALWAYS])
    presence = a_view(examples=np.ones(1003, np.int64), availability=everyone).presence
    assert len(set(presence.clients.tolist())) == len(presence.clients) == 1000


def test_evenly():
    assert evenly(np.array([9, 3, 5]), 3).tolist() == [9, 3, 5]
    assert evenly(np.array([9, 3, 5, 7, 1]), 3).tolist() == [9, 5, 1]


def test_the_effective_number_of_labels():
    counts = np.array([[5, 0, 0, 0], [2, 2, 2, 2], [0, 1, 3, 0], [0, 0, 0, 0]])
    # exp(¼ ln 4 + ¾ ln ⁴⁄₃) = 4 / 3^¾
    assert effective_labels(counts) == pytest.approx([1, 4, 4 / 3**0.75, 0])


def test_the_table_of_labels_and_speeds():
    _, rows = shown(a_view())
    assert rows["Examples a client"] == ["4", "6.5", "9.2", "20", "20"]
    assert rows["Labels a client"] == ["1", "2", "2.2", "4", "4"]
    assert rows["effective number"] == ["1.0", "1.9", "2.2", "4.0", "4.0"]  # of 1, 1.75, 2, 4
    assert rows["A visit"] == ["5.0 s", "9.5 s", "16.8 s", "43.0 s", "43.0 s"]
    assert rows["download"] == ["1.0 s", "1.0 s", "1.2 s", "2.0 s", "2.0 s"]
    assert rows["local steps"] == ["2.0 s", "5.0 s", "13.0 s", "40.0 s", "40.0 s"]


def test_19_of_20_are_at_or_below_the_95_percent():
    examples = np.random.default_rng(0).permutation(np.arange(1, 101))
    _, rows = shown(a_view(100 * [ALWAYS], examples=examples, label_counts=None, **speeds(np.ones(100))))
    assert rows["Examples a client"] == ["1", "50.5", "50.5", "95", "100"]


def speeds(step_seconds):
    bandwidth = np.full(len(step_seconds), 1e9)
    return {
        "step_seconds": step_seconds,
        "down_bytes_per_second": bandwidth,
        "up_bytes_per_second": bandwidth,
        "loss_probability": np.zeros(len(step_seconds)),
    }


def test_how_much_slower_the_slowest_tenth_is():
    # Of 20 clients the slowest two take 30 and 50 s a step, in the middle 40; the others 10.
    slow = speeds(np.array([30.0] + 9 * [10.0] + [50.0] + 9 * [10.0]))
    text, _ = shown(a_view(20 * [ALWAYS], examples=np.ones(20, np.int64), label_counts=None, **slow))
    assert "The slowest tenth takes 4.0 times as long as the median client." in text


def test_the_visits_that_fit():
    # There at 1 and 3 s for 12 and 10 s more, 2 visits of 5 s each; at 5, 7 s for 8, 6 s, 1 visit; at 9 and 11, none.
    text, rows = shown(a_view([[(0.0, 13.0)]]))
    assert rows["Visits until it goes"] == ["0", "1", "1", "2", "2"]
    assert "66.7 % of visits, begun at any moment while a client is there, end before it leaves." in text
    assert rows["Clients there"] == ["0.0 %", "0.0 %", "1.2 %", "0.0 %", "100.0 %"]  # at 6 of 500 times


def test_a_visit_that_takes_all_of_a_stay_fits():
    _, rows = shown(a_view([[(1.0, 6.0)]], horizon=500.0, availability=Spells([(0.5, 5.5)])))
    assert rows["Visits until it goes"][-1] == "1"


def test_the_visits_of_each_client_are_its_own():
    text, _ = shown(a_view([[(0.0, 6.0)], [(0.0, 6.0)]]))  # 5 s fit into it once, 7 s never
    assert "16.7 % of visits" in text  # at 1 of 3 times, of 1 of 2 clients


def test_clients_that_stay_for_ever_beside_others():
    text, rows = shown(a_view([ALWAYS, [(0.0, 2.0)]]))
    assert "99.8 % of visits" in text  # 500 of 501
    assert "always there" not in text
    assert rows["Visits until it goes"] == ["0", "∞", "∞", "∞", "∞"]
    assert rows["Clients there"] == ["50.0 %", "50.0 %", "50.1 %", "50.0 %", "100.0 %"]


def test_always_there_and_never_there():
    text, rows = shown(a_view())
    assert "All clients are always there." in text
    assert rows["Clients there"] == 5 * ["100.0 %"]
    text, rows = shown(a_view([[], []]))
    assert "No client is ever there." in text
    assert rows["Clients there"] == 5 * ["0.0 %"]
    assert "Visits until it goes" not in rows


def test_who_is_never_there_is_named():
    # Client 1 comes after the end; client 3 is there only between two of the moments that are looked at.
    text, _ = shown(a_view([[], [(1001.0, 1002.0)], ALWAYS, [(1.5, 2.0)]]))
    assert "2 of 4 clients are never there within 16 min 40 s: 0, 1." in text
    assert "never there" not in shown(a_view([ALWAYS, [(0.0, 9.0)]]))[0]
    assert "1 of 2 clients is never there within 16 min 40 s: 1." in shown(a_view([[(0.0, 9.0)], []]))[0]


def test_at_most_ten_are_named():
    many = speeds(np.ones(13))
    text, _ = shown(a_view([ALWAYS, *12 * [[]]], examples=np.ones(13, np.int64), label_counts=None, **many))
    assert "12 of 13 clients are never there within 16 min 40 s: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …." in text


def test_the_visits_that_fit_are_explained_where_they_are_shown():
    explained = "Visits until it goes: how many fit, one after the other"
    assert explained in shown(a_view([[(0.0, 9.0)]]))[0]
    assert explained not in shown(a_view())[0]


@pytest.mark.parametrize(
    ("probability", "sentence"),
    [
        ([0.0, 0.0, 0.0, 0.0], "No visit is lost on its way."),
        ([0.0, 0.5, 0.0, 0.5], "Lossy clients: 2, which lose 50.0 % of their visits."),
        ([0.2, 0.0, 0.6, 0.0], "Lossy clients: 2, which lose 40.0 % of their visits on average."),
    ],
)
def test_lossy_clients(probability, sentence):
    assert sentence in shown(a_view(loss_probability=np.array(probability)))[0]


def test_what_else_the_table_says():
    text, _ = shown(a_view(title="[bold]x[/nothing]"))
    assert text.startswith("[bold]x[/nothing], seed 7: 4 clients")
    assert "A visit: 1.0 kB down, 2 local steps, as much up." in text
    assert "Who is there: at 500 times within 16 min 40 s." in text


def test_a_sample_is_said_to_be_one(monkeypatch):
    monkeypatch.setattr(population_report, "_RUNS", 2)
    monkeypatch.setattr(population_report, "_RUN", 1)
    assert "at 500 times within 16 min 40 s, of 2 of the clients." in shown(a_view())[0]


def test_labels_that_are_no_classes():
    _, rows = shown(a_view(label_counts=None))
    assert "Examples a client" in rows
    assert "Labels a client" not in rows
    assert "effective number" not in rows


def test_short_durations_keep_two_digits():
    texts = [seconds(number) for number in (0, 0.00421, 0.5, 0.9949, 0.996, 75)]
    assert texts == ["0 s", "0.0042 s", "0.5 s", "0.99 s", "1.0 s", "1 min 15 s"]


def test_one_client_is_no_clients():
    assert how_many(a_view([ALWAYS])) == "1 client"
    assert how_many(a_view()) == "4 clients"


@pytest.mark.parametrize("horizon", [0.0, -1.0, math.inf, math.nan])
def test_a_horizon_that_cannot_be_drawn(horizon):
    with pytest.raises(ValueError, match="horizon_seconds is"):
        a_view(horizon=horizon)
