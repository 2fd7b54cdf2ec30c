import json

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.report.page.label_data import label_columns
from tests.report.page.saved_runs import rendered, saved


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
