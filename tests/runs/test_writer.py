import errno
import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from offbeat.runs import directory as run_directory
from offbeat.runs import writer as run_writer
from offbeat.runs.directory import EVENTS, read, unfinished_path
from offbeat.runs.writer import RunWriter, provenance
from offbeat.simulation.totals import Evaluation, VisitEnded
from tests.runs.conftest import error_line, names

FILES = {"config.toml", "history.parquet", "events.parquet", "model.safetensors", "versions.json", "timing.json"}

CONFIG = {
    "seeds": [7],
    "trainer": "loop",
    "algorithms": {"mine": {"algorithm": "fedavg"}},
    "local": {"lr": 1 / 3},
    "evaluate": {"metrics": ["accuracy", "/own.py:f1"]},
}
METRICS = ["accuracy", "f1"]
EVALUATIONS = [
    Evaluation(0.0, 0, 0, 0, 0, 100, 0, 0.0, 2.5, {"f1": 0.25, "accuracy": 0.1}),
    Evaluation(1 / 3, 4, 9, 1, 2, 2**40, 2**35 + 1, 0.75, 1e-300, {"f1": 0.5, "accuracy": 0.7}),
]
ENDED = [
    VisitEnded(3, 0, 0, 0, 0.0, 1.0, 40, 40, "counted"),
    VisitEnded(1, 0, 2, None, 0.1, 2.5, 40, 0, "lost"),
    VisitEnded(2, 5, 1, 7, 1 / 3, 1e9, 40, 2**33, "unused"),
]
MADE_BY = {"torch": "2"}
MODEL = {"layer.weight": torch.tensor([[0.1, -2.0]]), "layer.bias": torch.tensor([3.0])}


def begin(path, **changes):
    return RunWriter.begin(path, {**CONFIG, **changes}, METRICS, MADE_BY)


def resume(path, **changes):
    return RunWriter.resume(path, {**CONFIG, **changes}, METRICS, MADE_BY)


def write(path, real_seconds=1.25):
    writer = begin(path)
    for evaluation in EVALUATIONS:
        writer.add(evaluation, [])
    writer.add(None, list(ENDED))
    writer.finish(MODEL, real_seconds)


def content(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def no_space(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


class TestFinished:
    def test_a_run_comes_back_from_these_files(self, tmp_path):
        path = tmp_path / "new" / "mine-seed7"
        write(path)
        assert names(path) == FILES
        assert names(tmp_path / "new") == {"mine-seed7"}
        assert len({file.stat().st_mode for file in path.iterdir()}) == 1
        back = read(path)
        assert (back.path, back.label, back.seed, back.real_seconds) == (path, "mine", 7, 1.25)
        assert back.config == CONFIG
        assert back.finished
        assert {name: column.tolist() for name, column in back.history.items()} == {
            "seconds": [0.0, 1 / 3],
            "version": [0, 4],
            "counted": [0, 9],
            "unused": [0, 1],
            "lost": [0, 2],
            "bytes_down": [100, 2**40],
            "bytes_up": [0, 2**35 + 1],
            "displacement": [0.0, 0.75],
            "loss": [2.5, 1e-300],
            "accuracy": [0.1, 0.7],
            "f1": [0.25, 0.5],
        }
        events = {name: column.tolist() for name, column in back.events.items()}
        staleness = events.pop("staleness")
        assert np.isnan(staleness[1])
        assert [staleness[0], staleness[2]] == [0, 7]
        assert events == {
            "client": [3, 1, 2],
            "visit": [0, 0, 5],
            "version": [0, 2, 1],
            "assigned_seconds": [0.0, 0.1, 1 / 3],
            "ended_seconds": [1.0, 2.5, 1e9],
            "bytes_down": [40, 40, 40],
            "bytes_up": [40, 0, 2**33],
            "outcome": ["counted", "lost", "unused"],
        }

    def test_a_run_without_events_whose_model_consists_of_views_of_one_vector(self, tmp_path):
        vector = torch.arange(5.0)
        writer = begin(tmp_path / "x")
        writer.add(EVALUATIONS[0], [])
        writer.finish({"a": vector[:3], "b": vector[3:].view(2, 1)}, 1.0)
        back = read(tmp_path / "x")
        assert list(back.events) == EVENTS.names
        assert all(len(column) == 0 for column in back.events.values())
        model = load_file(tmp_path / "x" / "model.safetensors")
        assert {name: value.tolist() for name, value in model.items()} == {"a": [0, 1, 2], "b": [[3], [4]]}


class TestResume:
    def test_an_unfinished_run_shows_up_to_its_last_checkpoint(self, tmp_path):
        writer = begin(tmp_path / "x")
        before = read(unfinished_path(tmp_path / "x"))
        assert (before.finished, before.real_seconds, len(before.history["f1"]), len(before.events["client"])) == (
            False, 0.0, 0, 0,
        )  # fmt: skip
        ended = ENDED[:2]
        writer.add(EVALUATIONS[0], ended)
        assert ended == []
        writer.checkpoint({"now": 1.0}, 5.5)
        writer.add(EVALUATIONS[1], ENDED[2:])
        run = read(unfinished_path(tmp_path / "x"))
        assert (run.finished, run.label, run.seed, run.real_seconds) == (False, "mine", 7, 5.5)
        assert run.history["accuracy"].tolist() == [0.1]
        assert run.events["client"].tolist() == [3, 1]
        assert names(tmp_path) == {"x.unfinished"}

    @pytest.mark.parametrize("stops", [[1], [2], [1, 2], [1, 1, 3]])
    def test_resumed_it_makes_the_same_files(self, stops, tmp_path):
        write(tmp_path / "whole")
        rows = [(EVALUATIONS[0], ENDED[:2]), (None, []), (EVALUATIONS[1], ENDED[2:])]
        writer = begin(tmp_path / "x")
        done = 0
        for stop in stops:
            for evaluation, ended in rows[done:stop]:
                writer.add(evaluation, list(ended))
            done = stop
            writer.checkpoint({"now": done, "model": torch.ones(2)}, 1.0, 0.5)
            writer.add(EVALUATIONS[1], [ENDED[0]])  # is forgotten, as nothing was written after it
            writer, state = resume(tmp_path / "x")
            assert state["now"] == done
            assert state["model"].tolist() == [1.0, 1.0]
            assert (writer.real_seconds, writer.processor_seconds) == (1.0, 0.5)
        for evaluation, ended in rows[done:]:
            writer.add(evaluation, list(ended))
        writer.finish(MODEL, 9.0, processor_seconds=4.5)
        one, two = content(tmp_path / "whole"), content(tmp_path / "x")
        assert {name for name in one if one[name] != two[name]} == {"timing.json"}
        assert (read(tmp_path / "x").real_seconds, read(tmp_path / "x").processor_seconds) == (9.0, 4.5)
        assert read(tmp_path / "whole").processor_seconds is None
        assert names(tmp_path) == {"whole", "x"}

    def test_chunks_after_the_checkpoint_are_removed(self, tmp_path, monkeypatch):
        monkeypatch.setattr(run_writer, "_MAX_ROWS", 1)
        writer = begin(tmp_path / "x")
        writer.add(EVALUATIONS[0], [ENDED[0]])
        writer.checkpoint({}, 1.0)
        writer.add(None, ENDED[:2])
        assert len(read(unfinished_path(tmp_path / "x")).events["client"]) == 3  # they were too many to keep in memory
        resume(tmp_path / "x")
        assert read(unfinished_path(tmp_path / "x")).events["client"].tolist() == [3]

    def test_without_a_checkpoint_it_begins_anew(self, tmp_path):
        writer, state = resume(tmp_path / "x")
        assert (state, writer.real_seconds) == (None, 0.0)
        (unfinished_path(tmp_path / "x") / "events-00000.parquet").write_bytes(b"half")
        assert resume(tmp_path / "x")[1] is None
        assert names(unfinished_path(tmp_path / "x")) == {"config.toml", "versions.json"}
        begin(tmp_path / "x").checkpoint({}, 1.0)
        begin(tmp_path / "x")
        assert names(unfinished_path(tmp_path / "x")) == {"config.toml", "versions.json"}

    def test_the_settings_are_written_last_and_atomically(self, tmp_path, monkeypatch):
        """A kill in the first moment must not look like a run with other settings."""
        written = []
        write = run_writer.write_durably

        def watch(path, content):
            write(path, content)
            written.append((path.name, names(path.parent)))

        monkeypatch.setattr(run_writer, "write_durably", watch)
        begin(tmp_path / "x")
        assert written == [("versions.json", {"versions.json"}), ("config.toml", {"versions.json", "config.toml"})]


class TestReplacing:
    @pytest.mark.parametrize("earlier", [True, False])
    def test_an_earlier_run_and_the_remains_of_a_killed_writer_are_replaced(self, earlier, tmp_path):
        if earlier:
            write(tmp_path / "x", real_seconds=1.0)
        for name in (".x.partial", ".x.old", *(["x"] if earlier else [])):
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / "stray").touch()
        write(tmp_path / "x", real_seconds=2.0)
        assert read(tmp_path / "x").real_seconds == 2.0
        assert names(tmp_path / "x") == FILES
        assert names(tmp_path) == {"x"}

    @pytest.mark.parametrize(
        ("holder", "name"),
        [(run_writer, "save"), (run_writer, "_replace"), (run_writer, "_as_json"), (Path, "write_bytes")],
    )
    @pytest.mark.parametrize("earlier", [True, False])
    def test_a_full_disk_at_the_end_loses_nothing(self, holder, name, earlier, tmp_path, monkeypatch):
        path = tmp_path / "x"
        if earlier:
            write(path)
        before = content(tmp_path)
        writer = begin(path)
        writer.add(EVALUATIONS[0], [])
        writer.checkpoint({"now": 3.0}, 1.0)
        with monkeypatch.context() as patch:
            patch.setattr(holder, name, no_space)
            line = error_line(lambda: writer.finish(MODEL, 9.0))
        assert str(path) in line
        assert "No space left on device" in line
        assert "run it again" in line
        assert names(tmp_path) == {"x", "x.unfinished"} if earlier else {"x.unfinished"}
        if earlier:
            assert {name: data for name, data in content(tmp_path).items() if name.startswith("x/")} == before
        writer, state = resume(path)
        assert state["now"] == 3.0
        writer.finish(MODEL, 9.0)
        assert read(path).history["accuracy"].tolist() == [0.1]

    @pytest.mark.parametrize("moment", [(pq, "write_table"), (run_writer, "write_checkpoint")])
    def test_a_full_disk_at_a_checkpoint_keeps_the_last_one(self, moment, tmp_path, monkeypatch):
        writer = begin(tmp_path / "x")
        writer.add(EVALUATIONS[0], ENDED[:1])
        writer.checkpoint({"now": 3.0}, 1.0)
        writer.add(EVALUATIONS[1], ENDED[1:])
        with monkeypatch.context() as patch:
            patch.setattr(*moment, no_space)
            assert "No space left" in error_line(lambda: writer.checkpoint({"now": 4.0}, 2.0))
        assert resume(tmp_path / "x")[1]["now"] == 3.0
        run = read(unfinished_path(tmp_path / "x"))
        assert (len(run.history["loss"]), len(run.events["client"])) == (1, 1)

    def test_a_file_in_the_way(self, tmp_path):
        (tmp_path / "x.unfinished").write_text("mine")
        assert "cannot write the run into" in error_line(lambda: begin(tmp_path / "x"))
        assert (tmp_path / "x.unfinished").read_text() == "mine"

    def test_the_earlier_run_stays_if_the_new_one_cannot_be_put_in_place(self, tmp_path, monkeypatch):
        path = tmp_path / "x"
        write(path)
        before = content(path)
        rename = Path.rename

        def fail(source, target):
            if source.name == ".x.partial":
                raise OSError(errno.EIO, "Input/output error")
            return rename(source, target)

        monkeypatch.setattr(Path, "rename", fail)
        assert "Input/output error" in error_line(lambda: write(path, real_seconds=9.0))
        assert content(path) == before

    def test_the_unfinished_folder_stays_until_the_run_is_complete(self, tmp_path, monkeypatch):
        there = []
        remove = run_directory.remove

        def watch(folder):
            if folder.name == "x.unfinished" and folder.exists():
                there.append((tmp_path / "x" / "history.parquet").exists())
            remove(folder)

        monkeypatch.setattr(run_directory, "remove", watch)
        write(tmp_path / "x")
        assert there == [True]


def test_date_and_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = provenance()
    assert abs(datetime.fromisoformat(found["finished"]) - datetime.now(UTC)) < timedelta(minutes=1)
    assert f"{os.cpu_count()} cores" in found["machine"]
    assert "commit" not in found  # not a repository


def test_the_commit_of_a_repository(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    assert provenance()["commit"] == head[:12]
