import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from rich.cells import cell_len
from rich.console import Console

from offbeat.algorithms import ALGORITHMS
from offbeat.cli import main as cli
from offbeat.config.algorithm_table import default_hyper_parameters
from offbeat.data.catalogue import DATASETS
from offbeat.runs.directory import read

Outcome = tuple[int, str, str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_toml: str) -> Path:
    """The working folder; it holds tiny.toml."""
    (tmp_path / "tiny.toml").write_text(tiny_toml, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def process(*arguments: str) -> list[str]:
    return [sys.executable, "-W", "error", "-m", "offbeat", *arguments]


def run_process(*arguments: str) -> Outcome:
    """Run ``offbeat`` as a user does."""
    done = subprocess.run(process(*arguments), capture_output=True, encoding="utf-8", timeout=120, check=False)
    return done.returncode, done.stdout, done.stderr


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


class TestCompare:
    def test_writes_a_report_and_runs_and_prints_the_table_twice_alike(self, folder: Path) -> None:
        code, out, err = run_process("compare", "tiny.toml")
        assert (code, err) == (0, "")
        for text in ("fedavg, seed 1: ", "Final accuracy", "Updates lost", "Report: runs/tiny/report.html"):
            assert text in out
        runs = [folder / "runs" / "tiny" / f"{label}-seed1" for label in ("fedavg", "fedasync", "fedbuff")]
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
        assert f"{100 * history['accuracy'][-1]:.1f}" in line
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


class TestHow:
    """The options that say how runs are made."""

    @pytest.fixture
    def told(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
        """What run_all is called with."""
        told: dict[str, Any] = {}
        run_all = cli.run_all

        def watch(experiment: Any, labels: Any, folder: Any, progress: Any, **how: Any) -> Any:
            told.update(how, labels=labels, folder=folder)
            return run_all(experiment, labels, folder, progress, **{**how, "jobs": 1})

        monkeypatch.setattr(cli, "run_all", watch)
        return told

    @pytest.mark.usefixtures("folder")
    @pytest.mark.parametrize("command", ["run", "compare"])
    def test_arrive(self, command: str, offbeat: Callable[..., Outcome], told: dict[str, Any]) -> None:
        only = ("--set", "stop.virtual_seconds=20", "--algorithm", "fedavg")
        assert offbeat(command, "tiny.toml", *only)[0] == 0
        assert told == {
            "replace": False, "resume": False, "jobs": 1, "checkpoint_seconds": 30.0,
            "labels": ["fedavg"], "folder": Path("runs/tiny"),
        }  # fmt: skip
        assert offbeat(command, "tiny.toml", *only, "--replace", "--jobs", "3", "--checkpoint-every", "0.5")[0] == 0
        assert (told["replace"], told["jobs"], told["checkpoint_seconds"]) == (True, 3, 0.5)
        assert offbeat(command, "tiny.toml", *only, "--resume")[0] == 0
        assert (told["resume"], told["replace"]) == (True, False)

    def test_tensorboard(self, folder: Path, offbeat: Callable[..., Outcome]) -> None:
        pytest.importorskip("tensorboard")
        only = ("--set", "stop.virtual_seconds=20", "--algorithm", "fedavg")
        code, out, _ = offbeat("run", "tiny.toml", *only, "--tensorboard")
        assert code == 0
        assert "TensorBoard: tensorboard --logdir runs/tiny/tensorboard" in out
        assert list((folder / "runs" / "tiny" / "tensorboard").rglob("events.out.*"))


class TestReport:
    @pytest.fixture
    def runs(self, folder: Path, offbeat: Callable[..., Outcome]) -> Path:
        small = ("--set", "stop.virtual_seconds=40", "--algorithm", "fedavg", "--algorithm", "fedbuff")
        assert offbeat("run", "tiny.toml", *small)[0] == 0
        return folder / "runs" / "tiny"

    def test_says_again_what_compare_said(self, folder: Path, runs: Path, offbeat: Callable[..., Outcome]) -> None:
        before = files(runs)
        small = ("--set", "stop.virtual_seconds=40", "--algorithm", "fedavg", "--algorithm", "fedbuff")
        _, compared, _ = offbeat("compare", "tiny.toml", *small, "--output", "other")
        code, out, err = offbeat("report", "runs/tiny")
        assert (code, err) == (0, "")
        table = [line for line in _without_real_time(compared) if line and "seed 1:" not in line]
        assert [line.replace("other/", "runs/tiny/") for line in table] == [
            line for line in _without_real_time(out) if line
        ]
        assert {name for name in files(runs) if not name.startswith("plots")} == before | {"report.html"}

    @pytest.mark.usefixtures("runs")
    def test_writes_tables_where_it_is_told(self, folder: Path, offbeat: Callable[..., Outcome]) -> None:
        code, out, _ = offbeat("report", "runs/tiny/fedbuff-seed1", "--output", "new", "--csv", "--markdown")
        assert code == 0
        tables = {"summary.csv", "history.csv", "summary.md"}
        assert {name for name in files(folder / "new") if not name.startswith("plots")} == {"report.html", *tables}
        for line in ("Report: new/report.html", "CSV: new/summary.csv", "CSV: new/history.csv", "new/summary.md"):
            assert line in out
        assert "fedavg" not in out

    @pytest.mark.usefixtures("runs")
    def test_another_target(self, offbeat: Callable[..., Outcome]) -> None:
        assert "Time to 50 %" in offbeat("report", "runs/tiny")[1]
        assert "Time to 12 %" in offbeat("report", "runs/tiny", "--target", "0.12")[1]


class TestPopulation:
    def test_draws_and_says_where(self, folder: Path, offbeat: Callable[..., Outcome]) -> None:
        code, out, err = offbeat("population", "tiny.toml", "--set", "population.clients=17", "--output", "drawn")
        assert (code, err) == (0, "")
        assert "17" in out
        (drawing,) = files(folder / "drawn")
        assert f"Drawing: drawn/{drawing}" in out
        offbeat("population", "tiny.toml")
        assert files(folder / "runs" / "tiny") == {drawing}


class TestData:
    def test_list(self, offbeat: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(cli, "console", Console(width=200))
        monkeypatch.setenv("OFFBEAT_DATA", str(tmp_path))
        monkeypatch.setenv("OFFBEAT_CACHE", str(tmp_path))
        code, out, err = offbeat("data", "list")
        assert (code, err) == (0, "")
        for name in DATASETS:
            assert f" {name} " in out
        assert "60,000" in out
        assert "comes with scikit-learn" in out

    def test_get(self, offbeat: Callable[..., Outcome]) -> None:
        assert offbeat("data", "get", "digits") == (0, "comes with scikit-learn\n", "")


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

    def test_is_read_in_a_wide_terminal_with_a_line_a_hyper_parameter(
        self, offbeat: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(cli, "console", Console(width=160))
        lines = offbeat("algorithms")[1].splitlines()
        assert max(map(cell_len, lines)) <= 160
        last_column = [line[lines[1].index("Hyper-parameters") :].rstrip() for line in lines]
        for key in (
            'pattern = { name = "round_robin", k = 2, every = 1 }', "step_sizes: none", "steps = [1, 50]",
            "compression = [0.01, 1.0]", 'staleness = { name = "polynomial", a = 0.5 }',
        ):  # fmt: skip
            assert key in last_column

    def test_is_read_in_a_narrow_terminal_with_whole_words(
        self, offbeat: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(cli, "console", Console(width=80))
        out = offbeat("algorithms")[1]
        assert max(map(cell_len, out.splitlines())) <= 80
        words = out.split()
        for name, kind in ALGORITHMS.items():
            described = (kind.__doc__ or "").partition("\n")[0]
            keys = default_hyper_parameters(kind)
            assert {name, *described.split()} <= set(words)
            assert all(key in words or f"{key}:" in words for key in keys)
        assert "…" not in out


class TestHelp:
    @pytest.mark.parametrize("flag", ["--help", "-h"])
    def test_lists_the_commands(self, flag: str, offbeat: Callable[..., Outcome]) -> None:
        code, out, _ = offbeat(flag)
        assert code == 0
        commands = ("run", "compare", "algorithms", "report", "population", "data")
        assert all(f"  {command} " in out for command in commands)

    @pytest.mark.parametrize(
        "command", ["run", "compare", "algorithms", "report", "population", "data list", "data get"]
    )
    def test_gives_an_example(self, command: str, offbeat: Callable[..., Outcome]) -> None:
        code, out, _ = offbeat(*command.split(), "--help")
        assert code == 0
        assert f"Example:\n    offbeat {command}" in out

    @pytest.mark.parametrize("command", ["run", "compare"])
    def test_the_example_works(
        self, command: str, offbeat: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
        tiny_toml: str,
    ) -> None:  # fmt: skip
        _, out, _ = offbeat(command, "--help")
        words = shlex.split(out.partition("Example:\n    offbeat ")[2])
        (tmp_path / "experiments").mkdir()
        (tmp_path / words[1]).write_text(tiny_toml, encoding="utf-8")
        monkeypatch.chdir(tmp_path)
        small = ("--set", "stop.virtual_seconds=5", "--algorithm", "fedbuff")
        code, _, err = offbeat(*words, *small)
        assert (code, err) == (0, "")

    def test_version(self, offbeat: Callable[..., Outcome]) -> None:
        code, out, _ = offbeat("--version")
        assert code == 0
        assert "0.1.0" in out


class TestMistakes:
    def test_divergence_as_a_user_sees_it(self, folder: Path) -> None:
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
    def test_a_message_of_several_lines_becomes_one(
        self, offbeat: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object) -> None:
            raise cli.OffbeatError("first\n  second")

        monkeypatch.setattr(cli.experiment_file, "load", fail)
        assert offbeat("run", "tiny.toml") == (2, "", "offbeat: first second\n")


def _without_real_time(out: str) -> list[str]:
    return [line for line in out.splitlines() if "Real time" not in line]


def test_a_full_disk_behind_the_output_is_one_line():
    with Path("/dev/full").open("w") as full:
        outcome = subprocess.run(
            [sys.executable, "-m", "offbeat", "algorithms"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert outcome.returncode == 2
    assert outcome.stderr == "offbeat: No space left on device\n"
