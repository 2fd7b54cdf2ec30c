import errno
import json
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from offbeat.errors import OffbeatError
from offbeat.experiments import run_directory
from offbeat.experiments.run_directory import EVENTS, HISTORY, prepared, read, write

FILES = {"config.toml", "history.parquet", "events.parquet", "model.safetensors", "versions.json", "timing.json"}

HISTORY_ROWS: dict[str, list[Any]] = {
    "seconds": [0.0, 1 / 3],
    "version": [0, 4],
    "counted": [0, 9],
    "unused": [0, 1],
    "lost": [0, 2],
    "bytes_down": [100, 2**40],
    "bytes_up": [0, 2**35 + 1],
    "accuracy": [0.1, 0.7],
    "loss": [2.5, 1e-300],
}
EVENT_ROWS: dict[str, list[Any]] = {
    "client": [3, 1, 2],
    "visit": [0, 0, 5],
    "version": [0, 2, 1],
    "staleness": [0, None, 7],
    "assigned_seconds": [0.0, 0.1, 1 / 3],
    "ended_seconds": [1.0, 2.5, 1e9],
    "bytes_down": [40, 40, 40],
    "bytes_up": [40, 0, 2**33],
    "outcome": ["counted", "lost", "unused"],
}
MODEL = {"layer.weight": torch.tensor([[0.1, -2.0]]), "layer.bias": torch.tensor([3.0])}


def run(**changes: Any) -> dict[str, Any]:
    return {
        "config": {"seeds": [7], "algorithms": {"mine": {"algorithm": "fedavg"}}, "local": {"lr": 1 / 3}},
        "history": HISTORY_ROWS,
        "events": EVENT_ROWS,
        "model": MODEL,
        "real_seconds": 1.25,
        **changes,
    }


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def no_space(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


class TestWriteAndRead:
    def test_a_run_comes_back(self, tmp_path: Path) -> None:
        path = tmp_path / "mine-seed7"
        write(path, **run())
        back = read(path)
        assert (back.path, back.label, back.seed, back.real_seconds) == (path, "mine", 7, 1.25)
        assert back.config == run()["config"]
        assert {name: column.tolist() for name, column in back.history.items()} == HISTORY_ROWS
        events = {name: column.tolist() for name, column in back.events.items()}
        staleness = events.pop("staleness")
        assert staleness[0] == 0
        assert np.isnan(staleness[1])
        assert staleness[2] == 7
        assert events == {name: rows for name, rows in EVENT_ROWS.items() if name != "staleness"}

    def test_writes_these_files_and_no_others(self, tmp_path: Path) -> None:
        write(tmp_path / "x", **run())
        assert {path.name for path in (tmp_path / "x").iterdir()} == FILES
        assert [path.name for path in tmp_path.iterdir()] == ["x"]

    def test_makes_the_folders_above(self, tmp_path: Path) -> None:
        write(tmp_path / "a" / "b" / "x", **run())
        assert read(tmp_path / "a" / "b" / "x").seed == 7

    def test_columns_and_types_are_those_of_the_schema(self, tmp_path: Path) -> None:
        write(tmp_path / "x", **run())
        history = pq.read_table(tmp_path / "x" / "history.parquet")
        events = pq.read_table(tmp_path / "x" / "events.parquet")
        assert [(field.name, field.type) for field in history.schema] == [(f.name, f.type) for f in HISTORY]
        assert [(field.name, field.type) for field in events.schema] == [(f.name, f.type) for f in EVENTS]
        assert events["staleness"].to_pylist() == [0, None, 7]

    def test_a_run_without_events(self, tmp_path: Path) -> None:
        write(tmp_path / "x", **run(events={name: [] for name in EVENTS.names}))
        back = read(tmp_path / "x")
        assert list(back.events) == EVENTS.names
        assert all(len(column) == 0 for column in back.events.values())

    def test_the_model_is_a_safetensors_file(self, tmp_path: Path) -> None:
        write(tmp_path / "x", **run())
        model = load_file(tmp_path / "x" / "model.safetensors")
        assert model.keys() == MODEL.keys()
        assert all(torch.equal(model[name], MODEL[name]) for name in MODEL)

    def test_parts_of_one_vector_can_be_the_model(self, tmp_path: Path) -> None:
        vector = torch.arange(5.0)
        write(tmp_path / "x", **run(model={"a": vector[:3], "b": vector[3:].view(2, 1)}))
        model = load_file(tmp_path / "x" / "model.safetensors")
        assert {name: value.tolist() for name, value in model.items()} == {"a": [0, 1, 2], "b": [[3], [4]]}

    def test_versions(self, tmp_path: Path) -> None:
        write(tmp_path / "x", **run())
        versions = json.loads((tmp_path / "x" / "versions.json").read_text())
        assert versions["python"] == platform.python_version()
        assert versions["numpy"] == np.__version__
        assert versions["pyarrow"] == pa.__version__
        assert torch.__version__.startswith(versions["torch"].partition("+")[0])
        assert {"offbeat", "scikit-learn", "safetensors"} < versions.keys()

    def test_timing_is_kept_apart(self, tmp_path: Path) -> None:
        """All the rest is the same, byte for byte, if the numbers are."""
        write(tmp_path / "one", **run(real_seconds=1.0))
        write(tmp_path / "two", **run(real_seconds=2.0))
        one, two = content(tmp_path / "one"), content(tmp_path / "two")
        assert {name for name in one if one[name] != two[name]} == {"timing.json"}

    def test_whoever_may_read_one_file_may_read_all(self, tmp_path: Path) -> None:
        write(tmp_path / "x", **run())
        assert len({path.stat().st_mode for path in (tmp_path / "x").iterdir()}) == 1


class TestReplacing:
    def test_an_earlier_run_is_replaced(self, tmp_path: Path) -> None:
        path = tmp_path / "x"
        write(path, **run(real_seconds=1.0))
        (path / "left-over.txt").touch()
        write(path, **run(real_seconds=2.0))
        assert read(path).real_seconds == 2.0
        assert {file.name for file in path.iterdir()} == FILES
        assert [file.name for file in tmp_path.iterdir()] == ["x"]

    @pytest.mark.parametrize("earlier", [True, False])
    def test_what_a_killed_writer_left_does_not_matter(self, earlier: bool, tmp_path: Path) -> None:
        if earlier:
            write(tmp_path / "x", **run())
        for name in (".x.partial", ".x.old"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "stray").touch()
        write(tmp_path / "x", **run())
        assert {file.name for file in (tmp_path / "x").iterdir()} == FILES
        assert [file.name for file in tmp_path.iterdir()] == ["x"]

    @pytest.mark.parametrize(
        ("module", "name"), [("pq", "write_table"), ("tomli_w", "dumps"), ("json", "dumps"), (None, "save")]
    )
    @pytest.mark.parametrize("earlier", [True, False])
    def test_a_failure_leaves_all_as_it_was(
        self, module: str | None, name: str, earlier: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "x"
        if earlier:
            write(path, **run())
        before = content(tmp_path)
        monkeypatch.setattr(getattr(run_directory, module) if module else run_directory, name, no_space)
        with pytest.raises(OffbeatError) as caught:
            write(path, **run(real_seconds=9.0))
        line = str(caught.value)
        assert "\n" not in line
        assert str(path) in line
        assert "No space left on device" in line
        assert content(tmp_path) == before
        assert [file.name for file in tmp_path.iterdir()] == (["x"] if earlier else [])

    def test_the_second_table_failing_is_no_better(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write_table, calls = pq.write_table, []

        def second_fails(*arguments: Any, **named: Any) -> None:
            calls.append(arguments)
            if len(calls) == 2:
                no_space()
            write_table(*arguments, **named)

        monkeypatch.setattr(run_directory.pq, "write_table", second_fails)
        with pytest.raises(OffbeatError, match="No space left"):
            write(tmp_path / "x", **run())
        assert list(tmp_path.iterdir()) == []

    def test_no_space_for_the_model(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A full disk when the model is written."""

        def fail(*_: Any) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(Path, "write_bytes", fail)
        with pytest.raises(OffbeatError, match="No space left"):
            write(tmp_path / "x", **run())
        assert list(tmp_path.iterdir()) == []

    def test_an_interrupt_leaves_all_as_it_was(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "x"
        write(path, **run())
        before = content(tmp_path)

        def interrupt(*_: Any) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(run_directory, "save", interrupt)
        with pytest.raises(KeyboardInterrupt):
            write(path, **run(real_seconds=9.0))
        assert content(tmp_path) == before

    def test_the_earlier_run_stays_if_the_new_one_cannot_be_put_in_place(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "x"
        write(path, **run())
        before = content(path)
        rename = Path.rename

        def fail(source: Path, target: Path) -> Path:
            if source.name == ".x.partial":
                raise OSError(errno.EIO, "Input/output error")
            return rename(source, target)

        monkeypatch.setattr(Path, "rename", fail)
        with pytest.raises(OffbeatError, match="Input/output error"):
            write(path, **run(real_seconds=9.0))
        assert content(path) == before


class TestReading:
    @pytest.mark.parametrize("name", ["config.toml", "timing.json", "history.parquet", "events.parquet"])
    def test_an_incomplete_folder(self, name: str, tmp_path: Path) -> None:
        write(tmp_path / "x", **run())
        (tmp_path / "x" / name).unlink()
        line = _error(lambda: read(tmp_path / "x"))
        assert f"{tmp_path / 'x'} is not a run: {name} is missing" in line

    def test_no_folder(self, tmp_path: Path) -> None:
        assert "is not a run" in _error(lambda: read(tmp_path / "nowhere"))

    @pytest.mark.parametrize("name", ["config.toml", "timing.json", "history.parquet", "events.parquet"])
    def test_a_broken_file(self, name: str, tmp_path: Path) -> None:
        write(tmp_path / "x", **run())
        (tmp_path / "x" / name).write_bytes(b"\xff\x00 broken [")
        line = _error(lambda: read(tmp_path / "x"))
        assert str(tmp_path / "x") in line
        assert name in line


class TestPrepare:
    def test_makes_the_folder(self, tmp_path: Path) -> None:
        with prepared(tmp_path / "a" / "b"):
            assert (tmp_path / "a" / "b").is_dir()

    def test_leaves_what_is_there(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("mine")
        with prepared(tmp_path):
            pass
        assert content(tmp_path) == {"file": b"mine"}

    def test_two_do_not_write_into_one_folder(self, tmp_path: Path) -> None:
        script = "from pathlib import Path; from offbeat.experiments.run_directory import prepared\n"
        script += f"with prepared(Path({str(tmp_path)!r})): pass"
        with prepared(tmp_path):
            other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
        assert "another run is writing into" in other.stderr
        with prepared(tmp_path):
            pass

    @pytest.mark.parametrize("below", ["", "x", "x/y"])
    def test_a_file_in_the_way(self, below: str, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        folder = tmp_path / "file" / below
        line = _error(lambda: prepared(folder).__enter__())
        assert line.startswith(f"cannot write into {folder}: ")
        assert "--output" in line

    def test_a_folder_that_may_not_be_written(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """As root there is none, so the attempt itself is made to fail."""

        def refuse(*_: Any, **__: Any) -> None:
            raise PermissionError(errno.EACCES, "Permission denied")

        monkeypatch.setattr(run_directory.tempfile, "TemporaryFile", refuse)
        assert "Permission denied" in _error(lambda: prepared(tmp_path).__enter__())


def _error(call: Callable[[], object]) -> str:
    with pytest.raises(OffbeatError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)
