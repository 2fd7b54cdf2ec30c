"""The command line as such."""

import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from offbeat.cli import experiments
from offbeat.errors import OffbeatError
from offbeat.runs.directory import read

Command = Callable[..., tuple[int, str, str]]


class TestHelp:
    @pytest.mark.parametrize("flag", ["--help", "-h"])
    def test_lists_the_commands(self, flag: str, offbeat: Command) -> None:
        code, out, _ = offbeat(flag)
        assert code == 0
        commands = ("run", "compare", "algorithms", "report", "population", "data")
        assert all(f"  {command} " in out for command in commands)

    @pytest.mark.parametrize(
        "command", ["run", "compare", "algorithms", "report", "population", "data list", "data get"]
    )
    def test_gives_an_example(self, command: str, offbeat: Command) -> None:
        code, out, _ = offbeat(*command.split(), "--help")
        assert code == 0
        assert f"Example:\n    offbeat {command}" in out

    @pytest.mark.parametrize("command", ["run", "compare"])
    def test_the_example_works(
        self, command: str, offbeat: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny_toml: str
    ) -> None:
        _, out, _ = offbeat(command, "--help")
        words = shlex.split(out.partition("Example:\n    offbeat ")[2])
        (tmp_path / "experiments").mkdir()
        (tmp_path / words[1]).write_text(tiny_toml, encoding="utf-8")
        monkeypatch.chdir(tmp_path)
        small = ("--set", "stop.virtual_seconds=5", "--algorithm", "fedbuff")
        code, _, err = offbeat(*words, *small)
        assert (code, err) == (0, "")

    def test_version(self, offbeat: Command) -> None:
        code, out, _ = offbeat("--version")
        assert code == 0
        assert "0.1.0" in out


class TestMistakes:
    def test_divergence_as_a_user_sees_it(self, folder: Path, run_process: Command) -> None:
        mlp = ("--set", "model={ name = 'mlp', hidden = [4] }")
        code, out, err = run_process("run", "tiny.toml", *mlp, "--set", "algorithms.fedbuff.local.lr=1e30")
        assert code == 2
        assert err.startswith("offbeat: fedbuff, seed 1: training diverged: client ")
        assert "from version " in err
        assert err.count("\n") == 1
        assert "fedavg, seed 1: " in out
        assert read(folder / "runs" / "tiny" / "fedavg-seed1").seed == 1
        assert not (folder / "runs" / "tiny" / "fedbuff-seed1").exists()

    @pytest.mark.usefixtures("folder")
    def test_a_message_of_several_lines_becomes_one(self, offbeat: Command, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: object) -> None:
            raise OffbeatError("first\n  second")

        monkeypatch.setattr(experiments.experiment_file, "load", fail)
        assert offbeat("run", "tiny.toml") == (2, "", "offbeat: first second\n")


def test_a_full_disk_behind_the_output_is_one_line():
    with Path("/dev/full").open("w") as full:
        outcome = subprocess.run(
            [sys.executable, "-m", "offbeat", "algorithms"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert outcome.returncode == 2
    assert outcome.stderr == "offbeat: No space left on device\n"
