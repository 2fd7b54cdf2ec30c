from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from offbeat_core.errors import OffbeatError

from offbeat.report.metrics import Measure
from offbeat.report.page.clients_data import client_data, participation_data, timeline_data
from tests.report.example_runs import WORLD, a_run
from tests.report.page.saved_runs import saved

# (client, staleness, assigned, ended, outcome)
VISITS = [
    (7, 0, 0.0, 10.0, "counted"),
    (7, 1, 10.0, 20.0, "counted"),
    (3, None, 0.0, 30.0, "lost"),
    (5, 0, 0.0, 15.0, "counted"),
]


def population(clients):
    return {"population": {**WORLD["population"], "clients": clients}}


def test_the_time_line_has_a_row_for_each_client_the_fastest_first():
    data = timeline_data([a_run("a", 4, visits=VISITS), a_run("a", 5)])
    assert data["clients"] == [7, 5, 3]
    assert data["rows"] == "3 clients"
    assert data["note"] == "Seed 4."
    assert data["title"] == "virtual time (seconds)"
    (visits,) = data["visits"]
    assert visits["row"] == [0, 0, 2, 1]
    assert visits["begin"] == [0, 10, 0, 0]
    assert visits["end"] == [10, 20, 30, 15]
    assert [data["outcomes"][outcome] for outcome in visits["outcome"]] == ["counted", "counted", "lost", "counted"]
    assert visits["staleness"] == [0, 1, None, 0]


def bars(visits):
    """Return the bars of one label as (begin, end, row)."""
    return list(zip(visits["begin"], visits["end"], visits["row"], strict=True))


def test_the_rows_are_the_same_for_all_labels_and_clients_without_a_speed_come_last():
    a = [
        (7, 0, 0.0, 40.0, "counted"),
        (3, 0, 0.0, 10.0, "counted"),
        (3, 1, 10.0, 20.0, "unused"),
        (5, None, 0.0, 1.0, "lost"),
    ]
    b = [(4, 0, 5.0, 25.0, "counted")]
    data = timeline_data([a_run("a", visits=a), a_run("b", visits=b), a_run("c")])
    assert [bars(visits) for visits in data["visits"]] == [
        [(0, 40, 2), (0, 10, 0), (10, 20, 0), (0, 1, 3)], [(5, 25, 1)], [],
    ]  # fmt: skip
    assert (data["title"], data["end"]) == ("virtual time (seconds)", 40)
    assert timeline_data([a_run("c")])["end"] == 1


def test_the_time_line_ends_early_with_too_many_bars():
    visits = [(c, 0, 100.0 * i, 100.0 * i + 90, "counted") for i in range(40) for c in range(80)]
    data = timeline_data([a_run("a", visits=visits)])
    drawn = bars(data["visits"][0])
    assert len(drawn) == 18 * 80  # 1,500 begin before 1,800 s
    assert max(end for _, end, _ in drawn) <= data["end"] == 30
    assert data["title"] == "virtual time (minutes; the first 30 min of 1 h 6 min)"


def test_the_time_line_leaves_out_clients_evenly():
    visits = [(c, 0, 0.0, 100.0 + c, "counted") for c in range(1999)]
    data = timeline_data([a_run("a", visits=visits)])
    assert data["visits"][0]["row"] == list(range(100))
    assert data["rows"] == "100 of 1,999 clients"
    assert data["clients"][:2] == [0, 20]


def test_the_time_line_begins_with_the_first_visit_and_ends_before_bars_are_too_short():
    visits = [(0, 0, 3600.0 + 1000 * i, 3600.0 + 1000 * i + 2, "counted") for i in range(9)]
    data = timeline_data([a_run("a", visits=visits)])
    assert bars(data["visits"][0]) == [(0, 2, 0)]
    assert data["end"] == 120
    assert data["title"] == "virtual time since the first visit, at 1 h (seconds; the first 2 min of 2 h 13 min)"


def test_the_time_line_has_room_for_visits_of_slow_worlds():
    fast = [(0, 0, 10.0 * i, 10.0 * i + 10, "counted") for i in range(2000)]
    slow = [(1, 0, 100 + 1000.0 * i, 1100 + 1000.0 * i, "counted") for i in range(20)]
    data = timeline_data([a_run("fast", visits=fast), a_run("slow", visits=slow)])
    assert data["end"] == 85  # minutes: 100 s and five visits of 1,000 s
    assert len(data["visits"][1]["row"]) == 5
    # Room for the slow ones ends where the fast ones are too many: after 6,000 bars in all.
    very_fast = [(0, 0, float(i), i + 1.0, "counted") for i in range(9000)]
    very_slow = [(1, 0, 9000.0 * i, 9000.0 * (i + 1), "counted") for i in range(2)]
    data = timeline_data([a_run("fast", visits=very_fast), a_run("slow", visits=very_slow)])
    assert [len(visits["row"]) for visits in data["visits"]] == [5999, 1]


def test_participation_is_of_all_clients_the_most_active_first():
    runs = [a_run("a", visits=VISITS, config=population(4)), a_run("b", config=population(4))]
    first, second = participation_data(runs)["curves"]
    assert (first["x"], first["y"]) == ([25, 50, 75, 100], [2, 1, 0, 0])
    assert first["note"] == "25 % of the clients; 50 % have none"
    assert second["note"] == "no counted updates"
    assert second["y"] == [0, 0]


def test_participation_is_the_mean_of_the_seeds_at_each_rank():
    other = [(1, 0, 0.0, 1.0, "counted")] * 4
    runs = [a_run("a", 0, visits=VISITS, config=population(2)), a_run("a", 1, visits=other, config=population(2))]
    (curve,) = participation_data(runs)["curves"]
    assert curve["y"] == [3, 0.5]


def test_a_million_clients_are_a_few_points():
    visits = [(client, 0, 0.0, 1.0, "counted") for client in range(5000)]
    (curve,) = participation_data([a_run("a", visits=visits, config=population(1_000_000))])["curves"]
    assert len(curve["x"]) == len(curve["y"]) <= 302
    assert curve["x"][-1] == 100
    assert curve["note"] == "0.25 % of the clients; 99.5 % have none"


ACCURACY = Measure("accuracy", higher_is_better=True, is_share=True)
LOSS = Measure("loss", higher_is_better=False, is_share=False)


def evaluated(run, rows, name="clients.parquet"):
    """Write rows of (seconds, client, accuracy, loss) and return the run."""
    columns = dict(zip(("seconds", "client", "accuracy", "loss"), map(list, zip(*rows, strict=True)), strict=True))
    pq.write_table(pa.table(columns), run.path / name)
    return run


def test_the_clients_of_the_last_evaluation_the_worst_first(tmp_path):
    rows = [(0.0, 1, 0.9, 0.1), (5.0, 2, 0.75, 0.2), (5.0, 1, 0.25, 0.4), (5.0, 3, float("nan"), 0.3)]
    runs = [
        evaluated(saved(tmp_path, "a", 0), rows),
        evaluated(saved(tmp_path, "a", 1), [(9.0, 1, 0.5, 0.5), (9.0, 2, 1.0, 0.1)]),
        saved(tmp_path, "b"),
    ]
    data = client_data(runs, ACCURACY)
    assert data["title"] == "accuracy on a client"
    (curve,) = data["curves"]
    assert curve == {"label": 0, "x": [25, 50, 75, 100], "y": [25, 50, 75, 100], "note": "median 62.5 %"}
    (curve,) = client_data(runs[:1], LOSS)["curves"]
    assert curve["y"] == [0.4, 0.3, 0.2]


def test_the_chunks_of_an_unfinished_run(tmp_path):
    run = replace(saved(tmp_path), finished=False)
    assert client_data([run], ACCURACY) is None
    evaluated(run, [(0.0, 1, 0.9, 0.1)], "clients-00000.parquet")
    evaluated(run, [(5.0, 1, 0.5, 0.1)], "clients-00001.parquet")
    assert client_data([run], ACCURACY)["curves"][0]["y"] == [50]


def test_clients_without_the_measure(tmp_path):
    run = evaluated(saved(tmp_path), [(0.0, 1, 0.9, 0.1)])
    assert client_data([run], Measure("mae", higher_is_better=False, is_share=False)) is None


@pytest.mark.parametrize("content", [b"no table", None])
def test_a_broken_table_is_one_line(content, tmp_path):
    run = saved(tmp_path)
    if content is None:
        pq.write_table(pa.table({"seconds": ["soon"]}), run.path / "clients.parquet")
    else:
        (run.path / "clients.parquet").write_bytes(content)
    with pytest.raises(OffbeatError, match=r"clients\.parquet is broken"):
        client_data([run], ACCURACY)
