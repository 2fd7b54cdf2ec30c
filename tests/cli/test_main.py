"""The command line as such."""

import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from offbeat_core.errors import OffbeatError

from offbeat.cli.main import app
from offbeat.config import experiment_file
from offbeat.runs.directory import read
from offbeat.runs.interruption import InterruptedRunError

Command = Callable[..., tuple[int, str, str]]


def _commands(group: click.Group, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield all commands below a group, with the words that call them."""
    for name, command in group.commands.items():
        yield (*words, name), command
        if isinstance(command, click.Group):
            yield from _commands(command, (*words, name))


class TestHelp:
    def test_every_command_has_an_example_and_a_short_line(self, offbeat: Command) -> None:
        commands = list(_commands(app, ()))
        assert ("server", "clients", "revoke") in [words for words, _ in commands]
        for words, command in commands:
            code, out, err = offbeat(*words, "-h")
            assert (code, err) == (0, ""), words
            if not isinstance(command, click.Group):
                assert f"offbeat {' '.join(words)}" in out.partition("Example")[2]
            assert not command.get_short_help_str(63).endswith("..."), words

    def test_each_command_stands_in_one_section(self, offbeat: Command) -> None:
        _, out, _ = offbeat("-h")
        lines = out.splitlines()
        for name in app.commands:
            assert sum(line.startswith(f"  {name} ") for line in lines) == 1
        titles = [line for line in lines if line.endswith(":") and not line.startswith((" ", "Usage"))]
        assert titles[:2] == ["Options:", "Experiments:"]

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
    def test_divergence_as_a_user_sees_it(self, folder: Path, offbeat: Command) -> None:
        mlp = ("--set", "model={ name = 'mlp', hidden = [4] }")
        code, out, err = offbeat("run", "tiny.toml", *mlp, "--set", "algorithms.fedbuff.local.lr=1e30")
        assert code == 2
        assert err.startswith("offbeat: fedbuff, seed 1: training diverged: client ")
        assert "from version " in err
        assert err.count("\n") == 1
        assert "fedavg, seed 1: " in out
        assert read(folder / "runs" / "tiny" / "fedavg-seed1").seed == 1
        assert not (folder / "runs" / "tiny" / "fedbuff-seed1").exists()

    @pytest.mark.usefixtures("folder")
    @pytest.mark.parametrize(
        ("error", "code", "line"),
        [
            (OffbeatError("first\n  second"), 2, "first second"),
            (KeyboardInterrupt(), 130, "interrupted: what was finished is kept"),
            (
                InterruptedRunError(signal.SIGTERM),
                143,
                "stopped by SIGTERM: the same command resumes",
            ),
        ],
    )
    def test_an_error_is_one_line(
        self, error: BaseException, code: int, line: str, offbeat: Command, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object) -> None:
            raise error

        monkeypatch.setattr(experiment_file, "load", fail)
        found, out, err = offbeat("run", "tiny.toml")
        assert (found, out, err.lstrip("\n")) == (code, "", f"offbeat: {line}\n")


@pytest.mark.parametrize(
    ("words", "line"), [(["--help"], "No space left on device"), (["new", "file/x"], "Not a directory: file/x")]
)
def test_an_error_of_the_system_is_one_line(words: list[str], line: str, folder: Path) -> None:
    (folder / "file").touch()
    with Path("/dev/full").open("w") as full:
        outcome = subprocess.run(
            [sys.executable, "-m", "offbeat", *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert outcome.returncode == 2
    assert outcome.stderr == f"offbeat: {line}\n"
