from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from offbeat_core.errors import OffbeatError

from offbeat.report.metrics import Measure
from offbeat.report.page.client_data import client_data
from tests.report.page.saved_runs import saved

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
