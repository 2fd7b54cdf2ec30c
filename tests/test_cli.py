import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from offbeat import cli
from offbeat.algorithms import ALGORITHMS
from offbeat.experiments.algorithm_table import default_hyper_parameters
from offbeat.experiments.run_directory import read

TINY = """
seeds = [1]
[data]
name = "digits"
[model]
name = "softmax"
[local]
steps = 3
batch_size = 8
lr = 0.1
[population]
clients = 20
partition = { name = "dirichlet", alpha = 0.5 }
step_seconds = { distribution = "lognormal", median = 1.0, sigma = 1.0 }
down_bytes_per_second = { distribution = "constant", value = 1e5 }
up_bytes_per_second = { distribution = "constant", value = 1e4 }
lossy = { fraction = 0.3, probability = 0.5 }
[server]
lease_seconds = 30.0
[algorithms.fedavg]
cohort = 4
[algorithms.fedbuff]
buffer_size = 2
concurrency = 4
[stop]
virtual_seconds = 60.0
[evaluate]
every_seconds = 20.0
target_accuracy = 0.3
"""

Outcome = tuple[int, str, str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder; it holds tiny.toml."""
    (tmp_path / "tiny.toml").write_text(TINY, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def process(*arguments: str) -> list[str]:
    return [sys.executable, "-W", "error", "-m", "offbeat", *arguments]


def run_process(*arguments: str) -> Outcome:
    """Run ``offbeat`` as a user does."""
    done = subprocess.run(process(*arguments), capture_output=True, encoding="utf-8", timeout=120, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def offbeat(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Return a function that runs ``offbeat`` within this process, which is faster."""

    def run(*arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["offbeat", *arguments])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        code = caught.value.code
        return (code if isinstance(code, int) else 0 if code is None else 1), *capsys.readouterr()

    return run


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


class TestCompare:
    def test_writes_a_report_and_runs_and_prints_the_table_twice_alike(self, folder: Path) -> None:
        code, out, err = run_process("compare", "tiny.toml")
        assert (code, err) == (0, "")
        for text in ("fedavg, seed 1: ", "Final accuracy", "Updates lost", "Report: runs/tiny/report.html"):
            assert text in out
        runs = [folder / "runs" / "tiny" / f"{label}-seed1" for label in ("fedavg", "fedbuff")]
        report = (folder / "runs" / "tiny" / "report.html").read_text(encoding="utf-8")
        assert "fedbuff" in report
        assert report.startswith("<!")
        before = [(pq.read_table(run / "history.parquet"), pq.read_table(run / "events.parquet")) for run in runs]
        models = [(run / "model.safetensors").read_bytes() for run in runs]
        written = files(folder)

        code, again, err = run_process("compare", "tiny.toml")
        assert (code, err) == (0, "")
        assert _without_real_time(again) == _without_real_time(out)
        assert files(folder) == written
        for run, (history, events), model in zip(runs, before, models, strict=True):
            assert pq.read_table(run / "history.parquet").equals(history)
            assert pq.read_table(run / "events.parquet").equals(events)
            assert (run / "model.safetensors").read_bytes() == model

    @pytest.mark.usefixtures("folder")
    def test_the_table_holds_what_the_runs_hold(self, offbeat: Callable[..., Outcome]) -> None:
        code, out, _ = offbeat("compare", "tiny.toml", "--algorithm", "fedbuff", "--output", "out")
        assert code == 0
        history = read(Path("out/fedbuff-seed1")).history
        line = next(line for line in out.splitlines() if "Final accuracy" in line)
        assert f"{history['accuracy'][-1]:.1%}".removesuffix("%") in line
        line = next(line for line in out.splitlines() if "Updates counted" in line)
        assert line.split()[-1] == str(history["counted"][-1])


class TestRun:
    def test_names_the_folders(self, folder: Path, offbeat: Callable[..., Outcome]) -> None:
        code, out, err = offbeat(
            "run", "tiny.toml", "--output", "out", "--set", "seeds=[3, 4]", "--algorithm", "fedavg"
        )
        assert (code, err) == (0, "")
        assert out.splitlines()[-2:] == ["out/fedavg-seed3", "out/fedavg-seed4"]
        assert {path.name for path in (folder / "out").iterdir()} == {"fedavg-seed3", "fedavg-seed4"}

    @pytest.mark.usefixtures("folder")
    def test_changes_of_the_file_are_taken(self, offbeat: Callable[..., Outcome]) -> None:
        code, _, _ = offbeat(
            "run", "tiny.toml", "--set", "name=other", "--set", "local.lr=0.5", "--set", "stop.virtual_seconds=20",
            "--algorithm", "fedbuff",
        )  # fmt: skip
        assert code == 0
        run = read(Path("runs/other/fedbuff-seed1"))
        assert run.config["local"]["lr"] == 0.5
        assert run.history["seconds"][-1] == 20.0

    @pytest.mark.usefixtures("folder")
    def test_an_algorithm_named_twice_is_run_once(self, offbeat: Callable[..., Outcome]) -> None:
        twice = ("--algorithm", "fedbuff", "--algorithm", "fedbuff")
        code, out, _ = offbeat("run", "tiny.toml", "--set", "stop.virtual_seconds=20", *twice)
        assert code == 0
        assert out.count("runs/tiny/fedbuff-seed1") == 1


class TestAlgorithms:
    def test_lists_all_with_their_hyper_parameters(
        self, offbeat: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(cli, "console", Console(width=200))  # so that nothing is wrapped
        code, out, err = offbeat("algorithms")
        assert (code, err) == (0, "")
        for name, kind in ALGORITHMS.items():
            assert f" {name} " in out
            for key in default_hyper_parameters(kind):
                assert key in out
        assert 'staleness = { name = "polynomial", a = 0.5 }' in out


class TestHelp:
    @pytest.mark.parametrize("flag", ["--help", "-h"])
    def test_lists_the_commands(self, flag: str, offbeat: Callable[..., Outcome]) -> None:
        code, out, _ = offbeat(flag)
        assert code == 0
        assert all(command in out for command in ("run", "compare", "algorithms"))

    @pytest.mark.parametrize("command", ["run", "compare", "algorithms"])
    def test_gives_an_example(self, command: str, offbeat: Callable[..., Outcome]) -> None:
        code, out, _ = offbeat(command, "--help")
        assert code == 0
        assert f"Example:\n    offbeat {command}" in out

    @pytest.mark.parametrize("command", ["run", "compare"])
    def test_the_example_works(
        self, command: str, offbeat: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        _, out, _ = offbeat(command, "--help")
        words = shlex.split(out.partition("Example:\n    offbeat ")[2])
        (tmp_path / "experiments").mkdir()
        (tmp_path / words[1]).write_text(TINY, encoding="utf-8")
        monkeypatch.chdir(tmp_path)
        small = ("--set", "stop.virtual_seconds=5", "--algorithm", "fedbuff")
        code, _, err = offbeat(*words, *small)
        assert (code, err) == (0, "")

    def test_version(self, offbeat: Callable[..., Outcome]) -> None:
        code, out, _ = offbeat("--version")
        assert code == 0
        assert "0.1.0" in out


# What the user types, and what the line says.
MISTAKES: list[tuple[list[str], list[str]]] = [
    (["run", "nowhere.toml"], ["no such file: nowhere.toml"]),
    (["run", "."], ["cannot read ."]),
    (["run", "tiny.toml", "--set", "local.lr"], ["--set local.lr", "section.key=value"]),
    (["run", "tiny.toml", "--set", "local.lrr=1"], ["unknown key local.lrr", "did you mean 'lr'?"]),
    (["run", "tiny.toml", "--set", "local.lr=-1"], ["tiny.toml: local.lr = -1", "greater than 0"]),
    (["run", "tiny.toml", "--set", "algorithms.fedbuf.cohort=1"], ["unknown algorithm 'fedbuf'", "'fedbuff'"]),
    (["run", "tiny.toml", "--algorithm", "fedbuf"], ["--algorithm fedbuf", "did you mean 'fedbuff'?"]),
    (["compare", "tiny.toml", "--set", "algorithms.fedavg.cohort=21"], ["algorithms.fedavg: cohort", "21"]),
    (["run", "tiny.toml", "--output", "tiny.toml/x"], ["cannot write into tiny.toml/x", "--output"]),
    (["run", "tiny.toml", "--output", "tiny.toml"], ["cannot write into tiny.toml", "--output"]),
    (["run", "tiny.toml", "--bogus"], ["--bogus", "--help"]),
    (["run"], ["FILE", "--help"]),
    (["rum", "tiny.toml"], ["'rum'", "--help"]),
    ([], ["--help"]),
]


class TestMistakes:
    @pytest.mark.parametrize(("arguments", "parts"), MISTAKES)
    def test_are_one_line_and_exit_code_2(
        self, arguments: list[str], parts: list[str], folder: Path, offbeat: Callable[..., Outcome]
    ) -> None:
        code, out, err = offbeat(*arguments)
        assert code == 2
        assert out == ""
        assert err.startswith("offbeat: ")
        assert err.count("\n") == 1
        assert all(part in err for part in parts)
        assert files(folder) <= {"tiny.toml", "runs", "runs/tiny"}

    def test_divergence_as_a_user_sees_it(self, folder: Path) -> None:
        mlp = ("--set", "model={ name = 'mlp', hidden = [4] }")
        code, out, err = run_process("run", "tiny.toml", *mlp, "--set", "algorithms.fedbuff.local.lr=1e30")
        assert code == 2
        assert err.startswith("offbeat: training diverged: client ")
        assert "from version " in err
        assert err.count("\n") == 1
        assert "fedavg, seed 1: " in out
        assert {path.name for path in (folder / "runs" / "tiny").iterdir()} == {"fedavg-seed1"}
        assert read(folder / "runs" / "tiny" / "fedavg-seed1").seed == 1

    @pytest.mark.usefixtures("folder")
    def test_a_message_of_several_lines_becomes_one(
        self, offbeat: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object) -> None:
            raise cli.OffbeatError("first\n  second")

        monkeypatch.setattr(cli.config, "load", fail)
        assert offbeat("run", "tiny.toml") == (2, "", "offbeat: first second\n")


@pytest.mark.skipif(os.name == "nt", reason="sends SIGINT")
def test_an_interrupt_is_one_line_and_keeps_finished_runs(folder: Path) -> None:
    arguments = process("run", "tiny.toml", "--set", "algorithms.fedbuff.local.steps=2000000")
    # An earlier run of what will be interrupted.
    earlier = folder / "runs" / "tiny" / "fedbuff-seed1"
    earlier.mkdir(parents=True)
    (earlier / "config.toml").write_text("mine")
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [*arguments, "--set", "stop={ versions = 4 }"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", env=environment,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores it
    ) as running:  # fmt: skip
        try:
            assert running.stdout is not None
            # fedavg is done, and fedbuff has minutes of work before it.
            assert running.stdout.readline().startswith("fedavg, seed 1: ")
            running.send_signal(signal.SIGINT)
            out, err = running.communicate(timeout=60)
        finally:
            running.kill()
    assert running.returncode == 130
    assert out == ""
    # click ends the terminal's line with the ^C first.
    assert err.lstrip("\n").startswith("offbeat: interrupted")
    assert err.strip().count("\n") == 0
    assert {path.name for path in (folder / "runs" / "tiny").iterdir()} == {"fedavg-seed1", "fedbuff-seed1"}
    assert read(folder / "runs" / "tiny" / "fedavg-seed1").label == "fedavg"
    assert (earlier / "config.toml").read_text() == "mine"


def _without_real_time(out: str) -> list[str]:
    return [line for line in out.splitlines() if "Real time" not in line]


def test_a_full_disk_behind_the_output_is_one_line():
    with Path("/dev/full").open("w") as full:
        outcome = subprocess.run(
            [sys.executable, "-m", "offbeat", "algorithms"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert outcome.returncode == 2
    assert outcome.stderr == "offbeat: No space left on device\n"
