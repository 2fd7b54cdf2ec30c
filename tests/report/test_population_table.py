import io

import numpy as np
import pytest
from rich.console import Console

from offbeat.report.population_table import how_many, population_table, seconds
from offbeat.worlds import availability_check
from tests.report.example_population import ALWAYS, Spells, example


def shown(statistics):
    """Return the terminal's text as one line, and the cells of each row by its name."""
    console = Console(file=io.StringIO(), width=200)
    table = population_table(statistics)
    console.print(table)
    columns = [list(column.cells) for column in table.columns]
    rows = {name.strip(): cells for name, *cells in zip(*columns, strict=True)}
    return " ".join(console.file.getvalue().split()), rows


def test_the_table_of_labels_and_speeds():
    _, rows = shown(example())
    assert rows["Examples a client"] == ["4", "6.5", "9.2", "20", "20"]
    assert rows["Labels a client"] == ["1", "2", "2.2", "4", "4"]
    assert rows["effective number"] == ["1.0", "1.9", "2.2", "4.0", "4.0"]  # of 1, 1.75, 2, 4
    assert rows["A visit"] == ["5.0 s", "9.5 s", "16.8 s", "43.0 s", "43.0 s"]
    assert rows["download"] == ["1.0 s", "1.0 s", "1.2 s", "2.0 s", "2.0 s"]
    assert rows["local steps"] == ["2.0 s", "5.0 s", "13.0 s", "40.0 s", "40.0 s"]


def test_19_of_20_are_at_or_below_the_95_percent():
    examples = np.random.default_rng(0).permutation(np.arange(1, 101))
    _, rows = shown(example(100 * [ALWAYS], examples=examples, label_counts=None, **speeds(np.ones(100))))
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
    text, _ = shown(example(20 * [ALWAYS], examples=np.ones(20, np.int64), label_counts=None, **slow))
    assert "The slowest tenth takes 4.0 times as long as the median client." in text


@pytest.mark.parametrize(
    ("spells", "available", "visits", "says"),
    [
        # There at 1 and 3 s for 12 and 10 s more, 2 visits of 5 s each; at 5, 7 s, 1 visit; at 9 and 11, none.
        ([[(0.0, 13.0)]], "0.0 0.0 1.2 0.0 100.0", "0 1 1 2 2", "66.7 % of visits that begin while a client is"),
        # 5 s fit into 6 once, 7 s never: at 1 of 3 times, of 1 of 2 clients.
        ([[(0.0, 6.0)], [(0.0, 6.0)]], "0.0 0.0 0.6 0.0 100.0", "0 0 0.2 1 1", "16.7 % of visits that begin"),
        ([ALWAYS, [(0.0, 2.0)]], "50.0 50.0 50.1 50.0 100.0", "0 ∞ ∞ ∞ ∞", "99.8 % of visits"),  # 500 of 501
        ([ALWAYS] * 4, "100.0 100.0 100.0 100.0 100.0", "∞ ∞ ∞ ∞ ∞", "All clients are always available."),
        ([[], []], "0.0 0.0 0.0 0.0 0.0", "", "No client is available at any of these times."),
    ],
)
def test_availability_and_the_visits_that_fit(spells, available, visits, says):
    text, rows = shown(example(spells))
    assert rows["Available clients"] == [f"{share} %" for share in available.split()]
    assert rows.get("Visits before it leaves", []) == visits.split()
    assert says in text
    assert ("how many fit, one after the other" in text) is ("% of visits that begin" in text)


def test_a_visit_that_takes_all_of_a_stay_fits():
    _, rows = shown(example([[(1.0, 6.0)]], horizon=500.0, availability=Spells([(0.5, 5.5)])))
    assert rows["Visits before it leaves"][-1] == "1"


@pytest.mark.parametrize(
    ("probability", "sentence"),
    [
        ([0.0, 0.0, 0.0, 0.0], "No visit is lost on its way."),
        ([0.0, 0.5, 0.0, 0.5], "Lossy clients: 2, which lose 50.0 % of their visits."),
        ([0.2, 0.0, 0.6, 0.0], "Lossy clients: 2, which lose 40.0 % of their visits on average."),
    ],
)
def test_lossy_clients(probability, sentence):
    assert sentence in shown(example(loss_probability=np.array(probability)))[0]


def test_title_and_sentences(monkeypatch):
    text, _ = shown(example(title="[bold]x[/nothing]", warnings=["No client comes.", "Change it."]))
    assert text.startswith("[bold]x[/nothing], seed 7: 4 clients")
    assert "A visit: 2 local steps; 1.0 kB down, 1.0 kB up." in text
    assert text.endswith("Available clients: at 500 times within 16 min 40 s. No client comes. Change it.")
    assert "A visit: 2 to 1,000 local steps; " in shown(example(steps=np.array([2, 5, 1000, 7])))[0]
    monkeypatch.setattr(availability_check, "_RUNS", 2)
    monkeypatch.setattr(availability_check, "_RUN", 1)
    assert "at 500 times within 16 min 40 s, of 2 of the clients." in shown(example())[0]


def test_without_classes():
    _, rows = shown(example(label_counts=None))
    assert "Examples a client" in rows
    assert "Labels a client" not in rows
    assert "effective number" not in rows


def test_short_durations_keep_two_digits():
    texts = [seconds(number) for number in (0, 0.00421, 0.5, 0.9949, 0.996, 75)]
    assert texts == ["0 s", "0.0042 s", "0.5 s", "0.99 s", "1.0 s", "1 min 15 s"]


def test_one_client_is_singular():
    assert how_many(example([ALWAYS])) == "1 client"
    assert how_many(example()) == "4 clients"
