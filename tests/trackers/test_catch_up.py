"""The content that a tracker gets, and its time; with a tracker in memory that can fail."""

import json
import os
import subprocess
import sys
import time

import pytest
from filelock import FileLock
from offbeat_core.errors import OffbeatError

from offbeat.runs.writer import RunWriter
from offbeat.trackers import catch_up
from offbeat.trackers.catch_up import CatchUp, Follower
from tests.trackers.conftest import MODEL, add, begin, evaluation, go_on


class Memory:
    """The runs of a tracker by key: rows, accuracies, files, and whether they have ended."""

    def __init__(self):
        self.runs = {}
        self.opened = []
        self.fails_after = None  # calls

    def tracker(self):
        return MemoryTracker(self)


class MemoryTracker:
    def __init__(self, memory):
        self.memory = memory

    def _call(self):
        if self.memory.fails_after == 0:
            raise ConnectionError("no route\nto host")
        if self.memory.fails_after is not None:
            self.memory.fails_after -= 1

    def begin(self, run, key):
        self._call()
        if key is None:
            key = f"{run.experiment}/{run.name}/{len(self.memory.runs)}"
            self.memory.runs[key] = {"rows": [], "files": [], "config": run.config, "ended": False}
        self.memory.opened.append(key)
        self.run = self.memory.runs[key]
        return key

    def log(self, points):
        self._call()
        self.run["rows"] += [(point.row, point.updates, point.values["accuracy"]) for point in points]

    def file(self, path):
        self._call()
        self.run["files"].append((path.name, len(path.read_bytes()) > 0))

    def end(self, *, finished):
        self._call()
        self.run["ended"] = finished


DONE, MINE = "digits at night/done-seed7/0", "digits at night/mine-seed7/1"
FILES = [("config.toml", True), ("versions.json", True), ("history.parquet", True)]


def rows(number):
    return [(row, 3 * row, row / 10) for row in range(number)]


@pytest.fixture
def memory(monkeypatch):
    memory = Memory()
    monkeypatch.setattr(catch_up, "tracker_maker", lambda name, folder: memory.tracker)
    return memory


def test_all_evaluations_are_sent_once_and_files_in_the_end(runs, memory):
    assert CatchUp(runs, "wandb").send() == 5
    assert memory.runs[DONE]["rows"] == rows(3)
    assert memory.runs[DONE]["files"] == FILES
    assert memory.runs[DONE]["config"]["local"] == {"lr": 0.1}
    assert (memory.runs[MINE]["rows"], memory.runs[MINE]["files"]) == (rows(2), [])
    assert [memory.runs[key]["ended"] for key in (DONE, MINE)] == [True, False]

    assert CatchUp(runs, "wandb").send() == 0
    assert memory.opened == [DONE, MINE]

    writer, _ = begin(runs, how=RunWriter.resume)
    add(writer, range(2, 4))
    assert CatchUp(runs, "wandb").send() == 2
    writer.add(evaluation(4), [])
    writer.finish(MODEL, 1.0)
    assert CatchUp(runs, "wandb").send() == 1
    assert memory.runs[MINE] == {**memory.runs[MINE], "rows": rows(5), "files": FILES, "ended": True}
    assert len(memory.runs) == 2


@pytest.mark.parametrize("fails_after", range(10))
def test_what_a_failing_tracker_has_not_taken_is_sent_later(runs, memory, monkeypatch, fails_after):
    monkeypatch.setattr(catch_up, "_POINTS_AT_ONCE", 2)
    memory.fails_after = fails_after
    with pytest.raises(OffbeatError, match=r"^wandb failed: ConnectionError: no route$"):
        CatchUp(runs, "wandb").send()
    memory.fails_after = None
    CatchUp(runs, "wandb").send()
    named = {key.rpartition("/")[0]: run for key, run in memory.runs.items() if run["rows"]}
    assert [run["rows"] for run in named.values()] == [rows(3), rows(2)]
    done, mine = named.values()
    assert (done["ended"], mine["ended"]) == (True, False)
    assert done["files"][-3:] == FILES
    assert CatchUp(runs, "wandb").send() == 0


def test_each_tracker_has_its_own_note(runs, memory):
    assert [CatchUp(runs, name).send() for name in ("wandb", "mlflow", "wandb")] == [5, 5, 0]


def test_a_repeated_run_is_not_sent_again_but_one_with_other_settings_is(runs, memory):
    CatchUp(runs, "wandb").send()
    add(begin(runs, "mine"), range(1))
    assert CatchUp(runs, "wandb").send() == 0
    add(begin(runs, "mine", lr=0.2), range(1))
    assert CatchUp(runs, "wandb").send() == 1
    assert memory.runs["digits at night/mine-seed7/2"]["rows"] == rows(1)
    assert memory.runs[MINE]["rows"] == rows(2)


def test_a_run_with_other_code_is_a_new_one(runs, memory):
    CatchUp(runs, "wandb").send()
    add(begin(runs, "mine", code="b2"), range(3))
    assert CatchUp(runs, "wandb").send() == 3
    assert memory.runs["digits at night/mine-seed7/2"]["rows"] == rows(3)
    assert memory.runs[MINE]["rows"] == rows(2)


def test_a_run_that_replaces_a_finished_one_is_sent_once_it_is_finished(runs, memory):
    CatchUp(runs, "wandb").send()
    writer = begin(runs, "done", lr=0.2)
    add(writer, range(2))
    assert CatchUp(runs, "wandb").send() == 0
    writer.finish(MODEL, 1.0)
    assert CatchUp(runs, "wandb").send() == 2


def test_a_broken_note_is_one_line(runs, memory):
    CatchUp(runs, "wandb").send()
    note = runs / ".tracking" / "wandb.json"
    for content in ("{", "[]", '{"mine-seed7": {"rows": 2}}', '{"mine-seed7": 3}'):
        note.write_text(content, encoding="utf-8")
        with pytest.raises(OffbeatError, match=r"wandb.json is broken: remove it to send all runs again, as new ones$"):
            CatchUp(runs, "wandb").send()


def test_two_processes_do_not_send_the_same_runs_at_once(runs, memory):
    CatchUp(runs, "wandb").send()
    with FileLock(runs / ".tracking" / "wandb.lock"):
        with pytest.raises(OffbeatError, match=r"another process is sending .*runs to wandb: wait for it$"):
            CatchUp(runs, "wandb").send()
        assert CatchUp(runs, "mlflow").send() == 5
    assert CatchUp(runs, "wandb").send() == 0


def test_a_folder_without_runs_has_nothing_to_send(tmp_path, memory):
    assert CatchUp(tmp_path / "nothing", "wandb").send() == 0


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

    monkeypatch.setattr("offbeat.trackers.catch_up._PATIENCE_SECONDS", 0.01)
    with Follower(tmp_path, "tensorboard") as slow:
        pass
    assert slow.problem == "tensorboard did not take everything within 0 seconds"
    with pytest.raises(ProcessLookupError):
        os.kill(slow._process.pid, 0)
