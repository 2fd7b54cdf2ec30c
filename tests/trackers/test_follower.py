"""Runs that are sent to trackers' own libraries while they are carried out."""

import json
import os
import subprocess
import sys
import time

import pytest

from offbeat.trackers.follower import Follower
from tests.trackers.conftest import add, begin, go_on


def follow(runs, name):
    """Let one of the runs end after its first evaluations have been sent."""
    note = runs / ".tracking" / f"{name}.json"
    with Follower(runs, name) as follower:
        deadline = time.monotonic() + 120
        while not note.exists() or '"rows": 2' not in note.read_text(encoding="utf-8"):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        go_on(runs)
    assert follower.problem == ""
    sent = json.loads(note.read_text(encoding="utf-8"))
    assert {run: (noted["rows"], noted["ended"]) for run, noted in sent.items()} == {
        "done-seed7": (3, True),
        "mine-seed7": (3, True),
    }


def wandb_records(content):
    """Yield the records of W&B's file: parts in blocks of 32 KB, as in LevelDB's log."""
    place, record = 7, b""
    while place + 7 <= len(content):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        length, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        record += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield record
            record = b""


def test_wandb_offline(runs, monkeypatch):
    pytest.importorskip("wandb")
    from wandb.proto import wandb_internal_pb2

    monkeypatch.setenv("WANDB_MODE", "offline")
    follow(runs, "wandb")
    found, settings = {}, {}
    for path in sorted(runs.glob("wandb/offline-run-*/*.wandb"), key=lambda path: path.stat().st_mtime):
        for data in wandb_records(path.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            if record.run.run_id:
                run = record.run
                settings[run.run_id] = (run.project, run.run_group, run.display_name)
            items = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
            if "accuracy" in items:
                found.setdefault(run.run_id, []).append((items["_step"], items["seconds"], items["accuracy"]))
    assert sorted(settings.values()) == [
        ("digits at night", "done", "done-seed7"), ("digits at night", "mine", "mine-seed7")
    ]  # fmt: skip
    assert list(found.values()) == [[(0, 0, 0), (1, 10, 0.1), (2, 20, 0.2)]] * 2


SEND_AND_READ = """
import json, sys
from pathlib import Path
from offbeat.trackers.catch_up import CatchUp
from trackio.sqlite_storage import SQLiteStorage as storage

CatchUp(Path(sys.argv[1]), "trackio").send()
name = "digits at night"
print(json.dumps({run: storage.get_logs(name, run) for run in storage.get_runs(name)}))
"""


def test_trackio(runs, tmp_path, monkeypatch):
    pytest.importorskip("trackio")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    follow(runs, "trackio")
    others = tmp_path / "others"
    for label in ("mine", "done"):  # runs of the same names; one that was begun, and failed before its first row
        add(begin(others, label), range(2))
    sent = json.loads((runs / ".tracking" / "trackio.json").read_text(encoding="utf-8"))
    (others / ".tracking").mkdir()
    unlogged = {"done-seed7": {**sent["done-seed7"], "key": "done-seed7-0a1b2c3d", "rows": 0, "ended": False}}
    (others / ".tracking" / "trackio.json").write_text(json.dumps(unlogged), encoding="utf-8")
    command = [sys.executable, "-c", SEND_AND_READ, str(others)]
    said = subprocess.run(command, capture_output=True, encoding="utf-8", check=True).stdout
    found = json.loads(next(line for line in said.splitlines() if line.startswith("{")))  # trackio writes lines, too
    assert sorted(name.rpartition("-")[0] for name in found) == ["done-seed7", "done-seed7", "mine-seed7", "mine-seed7"]
    rows = [(0, 0, 0), (1, 10, 0.1), (2, 20, 0.2)]
    logged = [[(row["step"], row["seconds"], row["accuracy"]) for row in own] for own in found.values()]
    assert sorted(logged, key=len) == [rows[:2], rows[:2], rows, rows]
    assert len(found["done-seed7-0a1b2c3d"]) == 2


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
