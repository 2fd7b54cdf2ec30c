import sys
from pathlib import Path

import numpy as np
import pytest

from offbeat.errors import OffbeatError
from offbeat.report.tensorboard import write_tensorboard
from offbeat.runs.directory import Run


def a_run(label="a", seed=0, accuracy=(0.1, 0.5, 0.6)):
    history = {
        "seconds": np.array([0.0, 10.5, 20.0]),
        "counted": np.array([0, 7, 7]),
        "version": np.array([0, 1, 1]),
        "unused": np.zeros(3, np.int64),
        "lost": np.zeros(3, np.int64),
        "bytes_down": np.array([0, 100, 200]),
        "bytes_up": np.array([0, 50, 70]),
        "loss": np.array([2.0, 1.5, np.nan]),
        "accuracy": np.array(accuracy),
    }
    config = {"evaluate": {"metrics": ["accuracy"]}, "algorithms": {label: {}}}
    return Run(Path(label), label, seed, config, history, {}, 1.0)


def read(folder):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder))
    events.Reload()
    return {
        tag: [(event.step, event.wall_time, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def test_each_run_is_written_with_its_curves(tmp_path):
    pytest.importorskip("tensorboard")
    write_tensorboard([a_run(), a_run("x/b", 3, (0.1, 0.2, 0.3))], tmp_path)
    curves = read(tmp_path / "a-seed0")
    assert set(curves) == {"accuracy", "loss", "counted", "version", "bytes_down", "bytes_up"}
    # The step is the number of counted updates, the time virtual.
    assert curves["bytes_down"] == [(0, 0.0, 0.0), (7, 10.5, 100.0), (7, 20.0, 200.0)]
    assert [value for *_, value in curves["accuracy"]] == pytest.approx([0.1, 0.5, 0.6])
    assert np.isnan(curves["loss"][2][2])
    assert [value for *_, value in read(tmp_path / "x" / "b-seed3")["accuracy"]] == pytest.approx([0.1, 0.2, 0.3])


def test_a_run_that_was_written_before_is_replaced(tmp_path):
    pytest.importorskip("tensorboard")
    write_tensorboard([a_run()], tmp_path)
    write_tensorboard([a_run(accuracy=(0.7, 0.8, 0.9))], tmp_path)
    (_,) = (tmp_path / "a-seed0").iterdir()
    assert [value for *_, value in read(tmp_path / "a-seed0")["accuracy"]] == pytest.approx([0.7, 0.8, 0.9])


def test_without_the_package_the_error_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard.writer", None)
    with pytest.raises(OffbeatError, match=r"pip install offbeat\[tensorboard\]"):
        write_tensorboard([a_run()], tmp_path)


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    pytest.importorskip("tensorboard")
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(OffbeatError, match=r"cannot write .*a-seed0: .*; free some space"):
        write_tensorboard([a_run()], tmp_path / "file")
