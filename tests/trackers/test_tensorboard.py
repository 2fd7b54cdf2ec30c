import numpy as np
import pytest
from offbeat_core.errors import OffbeatError

from offbeat.trackers.tracker import TRACKERS, check_installed, write_tensorboard
from tests.report.example_runs import a_run
from tests.trackers.conftest import go_on


def curves(label="a", seed=0, accuracy=(0.1, 0.5, 0.6)):
    columns = {"counted": [0, 7, 7], "bytes_down": [0, 100, 200], "loss": [2.0, 1.5, np.nan]}
    return a_run(label, seed, accuracy, seconds=(0.0, 10.5, 20.0), columns=columns)


def events_in(folder):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder))
    events.Reload()
    return events


def read(folder):
    events = events_in(folder)
    return {
        tag: [(event.step, event.wall_time, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def test_each_run_is_written_with_its_curves(tmp_path):
    pytest.importorskip("tensorboard")
    write_tensorboard([curves(), curves("x/b", 3, (0.1, 0.2, 0.3))], tmp_path)
    found = read(tmp_path / "a-seed0")
    assert set(found) == {*curves().history} - {"seconds"}
    # The step is the number of counted updates, the time virtual.
    assert found["bytes_down"] == [(0, 0.0, 0.0), (7, 10.5, 100.0), (7, 20.0, 200.0)]
    assert [value for *_, value in found["accuracy"]] == pytest.approx([0.1, 0.5, 0.6])
    assert np.isnan(found["loss"][2][2])
    assert [value for *_, value in read(tmp_path / "x" / "b-seed3")["accuracy"]] == pytest.approx([0.1, 0.2, 0.3])


def test_a_run_that_was_written_before_is_replaced(tmp_path):
    pytest.importorskip("tensorboard")
    write_tensorboard([curves()], tmp_path)
    write_tensorboard([curves(accuracy=(0.7, 0.8, 0.9))], tmp_path)
    (_,) = (tmp_path / "a-seed0").iterdir()
    assert [value for *_, value in read(tmp_path / "a-seed0")["accuracy"]] == pytest.approx([0.7, 0.8, 0.9])


@pytest.mark.parametrize("name", TRACKERS)
def test_a_library_that_is_not_installed_is_one_line(name, tmp_path, monkeypatch):
    monkeypatch.setattr("offbeat.trackers.tracker.importlib.util.find_spec", lambda _: None)
    says = rf"^{name} is not installed: pip install 'offbeat\[{name}\]'$"
    with pytest.raises(OffbeatError, match=says):
        write_tensorboard([curves()], tmp_path) if name == "tensorboard" else check_installed(name)


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    pytest.importorskip("tensorboard")
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(OffbeatError, match=r"cannot write .*a-seed0: .*; free some space"):
        write_tensorboard([curves()], tmp_path / "file")


def test_a_folder_of_runs_is_sent_as_far_as_it_has_come(runs, offbeat):
    pytest.importorskip("tensorboard")
    assert offbeat("track", str(runs), "--to", "tensorboard") == (0, "tensorboard: 5 evaluations sent\n", "")
    go_on(runs)
    assert offbeat("track", str(runs), "--to", "tensorboard") == (0, "tensorboard: 1 evaluations sent\n", "")
    for name in ("done-seed7", "mine-seed7"):
        found = read(runs / "tensorboard" / name)
        assert found["accuracy"] == [(0, 0.0, 0.0), (3, 10.0, pytest.approx(0.1)), (6, 20.0, pytest.approx(0.2))]
        assert [value for *_, value in found["lost"]] == [0.0, 0.0, 0.0]
        (config,) = events_in(runs / "tensorboard" / name).Tensors("config/text_summary")
        assert b"    lr = 0.1" in config.tensor_proto.string_val[0]
