import json

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.client_metrics import STATISTICS
from offbeat.report.page.results import columns, label_columns
from offbeat.report.summary import summarise
from tests.report.example_runs import a_run, client_run
from tests.report.page.saved_runs import rendered, saved


def table(runs):
    return {column.name: column.cells for group in columns(summarise(runs)) for column in group}


def test_each_text_has_its_number():
    runs = [a_run("fedavg", 0, (0.1, 0.5), [(2, "counted")]), a_run("b", 0, (0.1, 0.4), [(None, "lost")])]
    cells = table(runs)
    assert [(cell.text, cell.value) for cell in cells["Final accuracy"]] == [("50.0 %", 0.5), ("40.0 %", 0.4)]
    assert [(cell.text, cell.value) for cell in cells["Time to 50 %"]] == [("1 min 40 s", 100), ("–", None)]
    assert [(cell.text, cell.value) for cell in cells["Max staleness"]] == [("2", 2), ("–", None)]
    assert all(cell.value is not None for name, (cell, _) in cells.items()), cells


def test_the_statistics_over_clients_and_privacy_have_numbers():
    spent = {"epsilon": [0.0, 1.0, 1.5], "epsilon_replace_one": [0.0, 2.0, 4.0]}
    cells = table([client_run("a", **spent)])
    assert cells["Clients' accuracy, worst tenth"][0].value == 0.15
    assert cells["ε, replace one"][0].value == 4
    assert len([name for name in cells if name.startswith("Clients'")]) == len(STATISTICS)
    assert all(cell.value is not None for name, (cell,) in cells.items() if cell.text != "–"), cells


def measured(run, shares):
    (run.path / "labels.json").write_text(json.dumps(shares), encoding="utf-8")
    return run


def test_means_of_the_seeds_by_label_in_their_order(tmp_path):
    runs = [
        measured(saved(tmp_path, "a", 0), {"2": 0.5, "10": 1.0}),
        measured(saved(tmp_path, "a", 1), {"2": 0.75, "10": 0.0}),
        measured(saved(tmp_path, "b"), {"10": 0.25}),
        saved(tmp_path, "c"),
    ]
    _, page = rendered(runs)
    assert page.tables["by-label"] == [
        ["Algorithm", "2", "10"],
        ["a", "62.5 %", "50.0 %"],
        ["b", "–", "25.0 %"],
        ["c", "–", "–"],
    ]
    first, _ = label_columns(runs)
    assert [cell.value for cell in first.cells] == [0.625, None, None]


def test_without_a_measurement_there_is_no_table(tmp_path):
    runs = [saved(tmp_path)]
    assert label_columns(runs) == []
    assert "by-label" not in rendered(runs)[1].tables


@pytest.mark.parametrize("content", ["no json", "[1]", '{"a": 1}', '{"1": "much"}'])
def test_a_broken_file_is_one_line(content, tmp_path):
    run = saved(tmp_path)
    (run.path / "labels.json").write_text(content, encoding="utf-8")
    with pytest.raises(OffbeatError, match=r"labels\.json is broken"):
        label_columns([run])
