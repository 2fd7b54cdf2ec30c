import pytest
from offbeat_core.errors import OffbeatError

from offbeat.sweeps.record import Record, remove_sweep


def test_points_are_read_again(tmp_path, overs):
    over = overs("local.lr=1:2", "local.steps=1,2")
    record = Record(tmp_path, over, ["a", "b"])
    assert record.points == {"a": [], "b": []}
    record.add({"a": [{"local.lr": 1.5}], "b": [{"local.lr": 1.5}, {"local.lr": 1.6}]})
    record.add({"a": [{"local.lr": 1.7}]})
    again = Record(tmp_path, over[::-1], ["a", "b", "c"])
    assert again.points == record.points | {"c": []}
    assert again.points["a"] == [{"local.lr": 1.5}, {"local.lr": 1.7}]


def test_another_sweep_is_refused(tmp_path, overs):
    Record(tmp_path, overs("local.lr=1:2"), ["a"]).add({"a": []})
    with pytest.raises(OffbeatError, match=r"holds a sweep over local.lr=1:2: choose another folder .* --fresh$"):
        Record(tmp_path, overs("local.lr=1:3"), ["a"])


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "3", "{}", '{"over": ["local.lr=1:2"], "points": {"a": [3]}}', '{"over": 3, "points": {}}'],
)
def test_a_broken_record_is_one_line(content, tmp_path, overs):
    (tmp_path / "trials.json").write_text(content)
    with pytest.raises(OffbeatError, match=r"trials.json is broken: choose another folder"):
        Record(tmp_path, overs("local.lr=1:2"), ["a"])


def test_a_sweep_is_removed_with_its_runs_only(tmp_path, overs):
    for name in ("a 0-seed1", "a 12-seed3.unfinished", "b 0-seed1", "a-seed1", "a x-seed1", "a 2 0-seed1"):
        (tmp_path / name).mkdir()
    (tmp_path / "trials.json").touch()
    remove_sweep(tmp_path, overs("local.lr=1:2"), ["a"])
    assert {path.name for path in tmp_path.iterdir()} == {"b 0-seed1", "a-seed1", "a x-seed1", "a 2 0-seed1"}


def test_the_points_of_other_labels_stay_where_a_sweep_is_removed(tmp_path, overs):
    over = overs("local.lr=1:2")
    Record(tmp_path, over, ["a", "b"]).add({"a": [{"local.lr": 1.5}], "b": [{"local.lr": 1.7}]})
    remove_sweep(tmp_path, over, ["a"])
    assert Record(tmp_path, over, ["a", "b"]).points == {"a": [], "b": [{"local.lr": 1.7}]}
    remove_sweep(tmp_path, overs("local.lr=1:3"), ["a"])
    assert Record(tmp_path, overs("local.lr=1:3"), ["a"]).points == {"a": []}
    remove_sweep(tmp_path, over, ["a"])  # of a sweep that has not begun
    assert list(tmp_path.iterdir()) == []
