"""Conditions for continuing a run folder."""

import json
import math

import pytest
import tomli_w
from offbeat_core.errors import OffbeatError

from offbeat.runs.resume import check_settings, check_versions, has_settings
from offbeat.runs.writer import RunWriter
from offbeat.simulation.totals import Evaluation
from offbeat.tensor_file import write_checkpoint
from tests.runs.conftest import error_line

CONFIG = {"seeds": [7], "algorithms": {"mine": {}}, "local": {"lr": 1 / 3}}
VERSIONS = {"torch": "2", "threads": "1", "/own.py": "a1"}


def resume(path, versions=VERSIONS, **changes):
    return RunWriter.resume(path, {**CONFIG, **changes}, [], versions)[1]


@pytest.fixture
def path(tmp_path):
    """The path of a run, which is unfinished."""
    writer = RunWriter.begin(tmp_path / "x", CONFIG, [], VERSIONS)
    writer.add(Evaluation(0.0, 0, 1, 0, 0, 100, 0, 0.0, 2.5, {}), [])
    writer.checkpoint({"now": 1.0}, 1.0)
    return tmp_path / "x"


@pytest.fixture
def folder(path):
    """The folder of the unfinished run."""
    return path.with_name("x.unfinished")


class TestSettings:
    def test_the_same_settings(self, path, folder):
        assert has_settings(folder, CONFIG)
        check_settings(folder, CONFIG)
        assert resume(path) is not None

    def test_nan_equals_nan(self, folder):
        config = {**CONFIG, "model": {"name": "x.py:x", "arguments": {"a": math.nan}}}
        (folder / "config.toml").write_text(tomli_w.dumps(config))
        assert has_settings(folder, config)

    def test_other_settings(self, path, folder):
        assert not has_settings(folder, {**CONFIG, "seeds": [8]})
        line = error_line(lambda: check_settings(folder, {**CONFIG, "seeds": [8]}))
        assert line == error_line(lambda: resume(path, seeds=[8]))
        assert f"{folder} holds a run with other settings" in line
        assert "--output" in line
        assert "--fresh" in line

    @pytest.mark.parametrize("text", [None, b"\xff", b"= broken", b"x = " + b"[" * 10_000])
    def test_without_settings(self, text, folder):
        (folder / "config.toml").unlink() if text is None else (folder / "config.toml").write_bytes(text)
        assert not has_settings(folder, CONFIG)
        check_settings(folder, CONFIG)


class TestVersions:
    @pytest.mark.parametrize(
        ("name", "line"),
        [
            ("torch", r"was begun with torch 1, but torch is now 2, .*: use torch 1, .* --fresh$"),
            ("data", r"^the return value of data\.name has changed since .*: restore it, .* --fresh$"),
            ("/own.py", r"^/own\.py has changed since .*: restore it, .* --fresh$"),
        ],
    )
    def test_a_difference_is_one_line(self, name, line, tmp_path):
        (tmp_path / "versions.json").write_text(json.dumps({name: "1"}))
        check_versions(tmp_path, {name: "1", "/new.py": "3"})
        with pytest.raises(OffbeatError, match=line):
            check_versions(tmp_path, {name: "2"})

    @pytest.mark.parametrize("name", VERSIONS)
    def test_a_run_is_not_resumed_with_other_versions(self, name, path, folder):
        line = error_line(lambda: resume(path, {**VERSIONS, name: "other"}))
        assert line.endswith("run again with --fresh")

    @pytest.mark.parametrize("content", [None, "", "{", "3", "[1]", "\udcff"])
    def test_unreadable_versions(self, content, path, folder):
        file = folder / "versions.json"
        file.unlink() if content is None else file.write_bytes(content.encode(errors="surrogateescape"))
        assert error_line(lambda: resume(path)) == f"{file} cannot be read: run again with --fresh"


class TestCheckpoint:
    def test_a_broken_one(self, path, folder):
        (folder / "checkpoint.safetensors").write_bytes(b"broken")
        assert "is broken: run again with --fresh" in error_line(lambda: resume(path))

    @pytest.mark.parametrize(
        "state",
        [
            {},
            {"parts": [1], "real_seconds": 1.0},
            {"parts": [1, 0, 0], "real_seconds": 1.0},
            {"parts": ["a", "b"], "real_seconds": 1.0},
            {"parts": [1, 0]},
        ],
    )
    def test_another_checkpoint(self, state, path, folder):
        write_checkpoint(folder / "checkpoint.safetensors", state)
        assert "is broken: run again with --fresh" in error_line(lambda: resume(path))

    def test_a_missing_chunk(self, path, folder):
        (folder / "history-00000.parquet").unlink()
        assert "lacks a part of its history: run again with --fresh" in error_line(lambda: resume(path))
