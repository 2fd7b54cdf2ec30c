"""Runs that are sent to a tracker while they are carried out."""

import os
import time
from pathlib import Path

import pytest

from offbeat.trackers.follower import Follower
from tests.trackers.conftest import MODEL, add, begin


def notes(folder: Path) -> str:
    """Return what is noted of the tracker."""
    path = folder / ".tracking" / "tensorboard.json"
    return path.read_text(encoding="utf-8") if path.exists() else ""


def test_rows_are_sent_during_the_run_and_the_rest_in_the_end(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    monkeypatch.setattr("offbeat.trackers.follower._INTERVAL_SECONDS", 0.1)
    writer = begin(tmp_path)
    with Follower(tmp_path, "tensorboard") as follower:
        add(writer, range(2))
        deadline = time.monotonic() + 120
        while '"rows": 2' not in notes(tmp_path):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        add(writer, range(2, 4))
        writer.finish(MODEL, 1.0)
    assert follower.problem == ""
    assert '"rows": 4, "ended": true' in notes(tmp_path)


def test_the_last_problem_is_one_line(tmp_path):
    pytest.importorskip("tensorboard")
    add(begin(tmp_path), range(2))
    (tmp_path / "tensorboard").write_text("", encoding="utf-8")  # where the tracker's folder should be
    with Follower(tmp_path, "tensorboard") as follower:
        pass
    assert follower.problem.startswith("tensorboard failed: ")
    assert "\n" not in follower.problem


def test_it_ends_when_the_runs_are_killed_and_when_it_takes_too_long(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    follower = Follower(tmp_path, "tensorboard").__enter__()
    follower._process.stdin.close()  # as after SIGKILL
    assert follower._process.wait(timeout=120) == 0
    follower._process.stderr.close()

    monkeypatch.setattr("offbeat.trackers.follower._PATIENCE_SECONDS", 0.01)
    with Follower(tmp_path, "tensorboard") as slow:
        pass
    assert slow.problem == "tensorboard did not take everything within 0 seconds"
    with pytest.raises(ProcessLookupError):
        os.kill(slow._process.pid, 0)
