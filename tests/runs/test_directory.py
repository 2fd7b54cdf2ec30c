import errno
import subprocess
import sys

import pytest

from offbeat.runs import directory as run_directory
from offbeat.runs.directory import history_schema, lock_folder, read
from offbeat.runs.writer import RunWriter
from offbeat.simulation.totals import Evaluation, VisitEnded
from tests.runs.conftest import error_line

CONFIG = {"seeds": [7], "algorithms": {"mine": {}}, "local": {"lr": 1 / 3}, "evaluate": {"metrics": ["accuracy"]}}


def begun(path):
    writer = RunWriter.begin(path, CONFIG, ["accuracy"], {})
    evaluation = Evaluation(0.0, 0, 1, 0, 0, 100, 0, 0.5, 2.5, {"accuracy": 0.1})
    writer.add(evaluation, [VisitEnded(3, 0, 0, 0, 0.0, 1.0, 40, 40, "counted")])
    return writer


@pytest.fixture
def path(tmp_path):
    """A finished run."""
    begun(tmp_path / "x").finish({}, 1.0)
    return tmp_path / "x"


@pytest.fixture
def half(tmp_path):
    """An unfinished run."""
    begun(tmp_path / "y").checkpoint({}, 1.0)
    return tmp_path / "y.unfinished"


def test_the_history_has_a_column_a_metric():
    names = history_schema(["accuracy", "f1"]).names
    assert names[:7] == ["seconds", "version", "counted", "unused", "lost", "bytes_down", "bytes_up"]
    assert names[7:] == ["displacement", "loss", "accuracy", "f1"]


FILES = ["config.toml", "timing.json", "history.parquet", "events.parquet"]
UNFINISHED_FILES = ["config.toml", "timing.json", "history-00000.parquet", "events-00000.parquet"]


class TestReading:
    @pytest.mark.parametrize("name", FILES)
    def test_an_incomplete_folder(self, name, path):
        (path / name).unlink()
        assert f"{path} is not a run: {name} is missing" in error_line(lambda: read(path))

    def test_no_folder(self, tmp_path):
        assert "is not a run" in error_line(lambda: read(tmp_path / "nowhere"))
        assert "is not a run" in error_line(lambda: read(tmp_path / "nowhere.unfinished"))

    @pytest.mark.parametrize("name", FILES)
    def test_a_broken_file(self, name, path):
        (path / name).write_bytes(b"\xff\x00 broken [")
        assert f"{path} is not a run: {name} is broken" in error_line(lambda: read(path))

    @pytest.mark.parametrize("name", UNFINISHED_FILES)
    def test_a_broken_file_of_an_unfinished_run(self, name, half):
        (half / name).write_bytes(b"\xff\x00 broken [")
        line = error_line(lambda: read(half))
        assert f"{half} is not a run: {name.partition('-')[0]}" in line
        assert "is broken" in line

    @pytest.mark.parametrize(
        "text",
        [
            "", "seeds = [7]", "seeds = [7, 8]\n[algorithms.a]", "seeds = [7]\n[algorithms.a]\n[algorithms.b]",
            "seeds = 7\n[algorithms.a]", "seeds = [7]\nalgorithms = 3",
        ],
    )  # fmt: skip
    def test_a_config_of_something_else(self, text, path):
        (path / "config.toml").write_text(text)
        assert f"{path} is not a run: config.toml is broken" in error_line(lambda: read(path))

    @pytest.mark.parametrize("text", ["[]", "{}", "3", '"x"'])
    def test_a_timing_of_something_else(self, text, path):
        (path / "timing.json").write_text(text)
        assert "timing.json is broken" in error_line(lambda: read(path))

    @pytest.mark.parametrize(
        "evaluate", ["", "[evaluate]", "[evaluate]\nmetrics = 3", "[evaluate]\nmetrics = [3]", "evaluate = 3"]
    )
    def test_an_unfinished_run_whose_metrics_are_unknown(self, evaluate, half):
        (half / "config.toml").write_text(f"seeds = [7]\n{evaluate}\n[algorithms.a]")
        for part in half.glob("*.parquet"):
            part.unlink()
        assert f"{half} is not a run: config.toml is broken" in error_line(lambda: read(half))


def test_a_folder_is_removed_with_its_contents_if_it_exists(path):
    for _ in range(2):
        run_directory.remove(path)
        assert not path.exists()


class TestLock:
    def test_makes_the_folder_and_keeps_existing_files(self, tmp_path, files):
        for _ in range(2):
            with lock_folder(tmp_path / "a" / "b"):
                (tmp_path / "a" / "b" / "file").write_text("mine")
        assert files(tmp_path) == {"a/b/file": b"mine"}

    def test_two_do_not_write_into_one_folder(self, tmp_path):
        script = "from pathlib import Path; from offbeat.runs.directory import lock_folder\n"
        script += f"with lock_folder(Path({str(tmp_path)!r})): pass"
        with lock_folder(tmp_path):
            other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
        assert "another run is writing into" in other.stderr
        with lock_folder(tmp_path):
            pass

    @pytest.mark.parametrize("below", ["", "x", "x/y"])
    def test_a_file_in_the_way(self, below, tmp_path):
        (tmp_path / "file").touch()
        folder = tmp_path / "file" / below
        line = error_line(lambda: lock_folder(folder).__enter__())
        assert line.startswith(f"cannot write into {folder}: ")
        assert "--output" in line

    def test_a_folder_that_may_not_be_written(self, tmp_path, monkeypatch):
        """Root may write everywhere, so the attempt itself is made to fail."""

        def refuse(*_, **__):
            raise PermissionError(errno.EACCES, "Permission denied")

        monkeypatch.setattr(run_directory.tempfile, "TemporaryFile", refuse)
        assert "Permission denied" in error_line(lambda: lock_folder(tmp_path).__enter__())


def test_a_removed_folder_is_whole_or_hidden_after_a_kill(tmp_path, monkeypatch):
    folder, other = tmp_path / "fedavg-seed1", tmp_path / "fedavg-seed11"
    for each in (folder, other):
        each.mkdir()
        (each / "config.toml").touch()
    with monkeypatch.context() as killed:
        killed.setattr(run_directory.shutil, "rmtree", lambda *_, **__: None)
        run_directory.remove(folder)
    hidden, still = sorted(tmp_path.iterdir())
    assert hidden.name.startswith(".")
    assert still == other
    folder.mkdir()
    for _ in range(2):
        run_directory.remove(folder)
    assert list(tmp_path.iterdir()) == [other]
