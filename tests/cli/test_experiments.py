"""Commands on experiments."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from offbeat.overview.entries import entries
from offbeat.runs import run_all as runs
from offbeat.runs.directory import read

Command = Callable[..., tuple[int, str, str]]


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


class TestCompare:
    def test_tunes_before_and_reports_on_it_again(self, folder: Path, offbeat: Command) -> None:
        command = ("compare", "tiny.toml", "--algorithm", "fedbuff", "--set", "stop.virtual_seconds=20", "--tune", "2")
        code, out, err = offbeat(*command)
        assert (code, err) == (0, "")
        assert "Tuned by 2 trials." in out
        assert "fedbuff 1, seed 1000000: " in out
        assert (folder / "runs/tiny-tuned/fedbuff-seed1/config.toml").exists()
        assert (folder / "runs/tiny-tuned/tuning/sweep.csv").exists()
        (overview,) = entries(folder / "runs")
        assert "Tuned by 2 trials." in overview["finding"]
        code, out, _ = offbeat("report", "runs/tiny-tuned")
        assert code == 0
        assert "Tuned by 2 trials." in out
        assert "in the best of 2 trials" in out

    @pytest.mark.parametrize(
        ("options", "line"),
        [
            (["--tune", "1"], "Invalid value for '--tune': 1 is not in the range x>=2. See offbeat compare --help."),
            (["--over", "local.lr=1:2"], "--over local.lr=1:2: is for --tune: add --tune 20, or use offbeat sweep"),
            (
                ["--tune", "2", "--trainer", "ray", "--ray-address", "auto"],
                "--ray-address does not go with --tune: set the environment variable RAY_ADDRESS",
            ),
        ],
    )
    def test_a_wrong_option_of_tuning_is_one_line(
        self, options: list[str], line: str, folder: Path, offbeat: Command
    ) -> None:
        assert offbeat("compare", "tiny.toml", *options) == (2, "", f"offbeat: {line}\n")

    def test_writes_a_report_and_runs_and_prints_the_table_twice_alike(self, folder: Path, offbeat: Command) -> None:
        # Others' faults: packages that deprecate each other's functions, and a temporary folder of PyTorch 2.6.
        others = ("ignore::DeprecationWarning", "ignore:Implicitly cleaning up:ResourceWarning")
        warnings = [f"-W{rule}" for rule in ("error", *others)]
        command = [sys.executable, *warnings, "-m", "offbeat", "compare", "tiny.toml"]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=120, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        out = done.stdout
        for text in ("fedavg, seed 1: ", "Final accuracy", "Updates lost", "Report: runs/tiny/report.html"):
            assert text in out
        runs = [folder / "runs" / "tiny" / f"{label}-seed1" for label in ("fedavg", "fedasync", "fedbuff")]
        report = (folder / "runs" / "tiny" / "report.html").read_text(encoding="utf-8")
        assert "fedbuff" in report
        assert report.startswith("<!")
        histories = [read(run).history for run in runs]
        for name, row in (("accuracy", "Final accuracy"), ("counted", "Updates counted")):
            (line,) = (line for line in out.splitlines() if row in line)
            for history in histories:
                value = history[name][-1]
                assert (f"{100 * value:.1f} %" if name == "accuracy" else str(value)) in line
        before = {path: path.read_bytes() for run in runs for path in run.glob("[ehm]*.[ps]*")}
        written = files(folder)

        code, again, err = offbeat("compare", "tiny.toml", "--fresh")
        assert (code, err) == (0, "")
        assert _without_real_time(again) == _without_real_time(out)
        assert files(folder) == written
        assert len(before) == 9  # history, events and model of each
        assert {path: path.read_bytes() for path in before} == before


class TestRun:
    def test_names_the_folders(self, folder: Path, offbeat: Command) -> None:
        code, out, err = offbeat(
            "run", "tiny.toml", "--output", "out", "--set", "seeds=[3, 4]", "--algorithm", "fedavg"
        )
        assert (code, err) == (0, "")
        assert out.splitlines()[-2:] == ["out/fedavg-seed3", "out/fedavg-seed4"]
        assert {path.name for path in (folder / "out").iterdir()} == {"fedavg-seed3", "fedavg-seed4"}

    @pytest.mark.usefixtures("folder")
    def test_the_file_is_changed_and_an_algorithm_named_twice_runs_once(self, offbeat: Command) -> None:
        changes = ("--set", "name=other", "--set", "local.lr=0.5", "--set", "stop.virtual_seconds=20")
        twice = ("--algorithm", "fedbuff", "--algorithm", "fedbuff")
        code, out, _ = offbeat("run", "tiny.toml", *changes, *twice)
        assert (code, out.count("runs/other/fedbuff-seed1")) == (0, 1)
        run = read(Path("runs/other/fedbuff-seed1"))
        assert run.config["local"]["lr"] == 0.5
        assert run.history["seconds"][-1] == 20.0


class TestHow:
    """The options that say how runs are made."""

    @pytest.fixture
    def told(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
        """Return the arguments of the call of run_all."""
        told: dict[str, Any] = {}
        run_all = runs.run_all

        def watch(experiment: Any, labels: Any, folder: Any, progress: Any, **how: Any) -> Any:
            told.update(how, labels=labels, folder=folder)
            return run_all(experiment, labels, folder, progress, **{**how, "jobs": 1})

        monkeypatch.setattr(runs, "run_all", watch)
        return told

    @pytest.mark.usefixtures("folder")
    def test_arrive(self, offbeat: Command, told: dict[str, Any]) -> None:
        only = ("--set", "stop.virtual_seconds=20", "--algorithm", "fedavg")
        assert offbeat("run", "tiny.toml", *only)[0] == 0
        assert told == {
            "fresh": False, "jobs": 1, "checkpoint_seconds": 30.0, "keep_diverged": False, "ray_address": None,
            "labels": ["fedavg"], "folder": Path("runs/tiny"),
        }  # fmt: skip
        assert offbeat("run", "tiny.toml", *only, "--fresh", "--jobs", "3", "--checkpoint-every", "0.5")[0] == 0
        assert (told["fresh"], told["jobs"], told["checkpoint_seconds"]) == (True, 3, 0.5)

    @pytest.mark.usefixtures("folder")
    def test_are_short_for_changes_of_the_file(self, offbeat: Command, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        only = ("--set", "stop.virtual_seconds=20", "--algorithm", "fedavg", "--set", "device=mps")
        short = ("--device", "cpu", "--precision", "bf16", "--trainer", "vmap")
        assert offbeat("run", "tiny.toml", *only, "--set", "trainer=loop", *short)[0] == 0
        config = read(Path("runs/tiny/fedavg-seed1")).config
        assert (config["device"], config["precision"], config["trainer"]) == ("cpu", "bf16", "vmap")
        code, _, err = offbeat("run", "tiny.toml", *only, "--trainer", "rai")
        assert code != 0
        assert "'auto', 'loop', 'vmap', 'unfold', 'processes', 'ray'" in err

    @pytest.mark.usefixtures("folder")
    def test_an_address_is_for_ray(
        self, offbeat: Command, told: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        address = ("--ray-address", "head:6379", "--algorithm", "fedavg")
        assert offbeat("run", "tiny.toml", *address) == (
            2, "", "offbeat: --ray-address head:6379: the trainer is 'auto': add --trainer ray\n"
        )  # fmt: skip
        assert told == {}
        monkeypatch.setattr(runs, "run_all", lambda *_, **how: told.update(how) or [])
        assert offbeat("run", "tiny.toml", *address, "--trainer", "ray") == (0, "", "")
        assert told["ray_address"] == "head:6379"

    def test_a_tracker_changes_no_bit_and_its_failure_is_reported(
        self, folder: Path, offbeat: Command, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pytest.importorskip("tensorboard")
        only = ("--set", "stop.virtual_seconds=20", "--algorithm", "fedavg")
        code, out, _ = offbeat("run", "tiny.toml", *only, "--tensorboard")
        assert code == 0
        assert "TensorBoard: tensorboard --logdir runs/tiny/tensorboard" in out
        assert list((folder / "runs" / "tiny" / "tensorboard").rglob("events.out.*"))

        assert offbeat("report", "runs/tiny", "--output", "other", "--tensorboard")[0] == 0
        assert list((folder / "other" / "tensorboard").rglob("events.out.*"))

        class Failing(nullcontext[None]):
            problem = "tensorboard failed: no disk"
            name = "tensorboard"

            def __init__(self, *_: object) -> None:
                super().__init__()

        monkeypatch.setattr("offbeat.trackers.catch_up.Follower", Failing)
        code, _, errors = offbeat("run", "tiny.toml", *only, "--track", "tensorboard", "--output", "failing")
        assert code == 0
        again = "send the rest with `offbeat track failing --to tensorboard`"
        assert errors == f"tensorboard failed: no disk; {again}\n"
        for name in ("history.parquet", "events.parquet", "model.safetensors", "config.toml"):
            paths = (folder / output / "fedavg-seed1" / name for output in ("runs/tiny", "failing"))
            assert len({path.read_bytes() for path in paths}) == 1

    def test_a_folder_without_runs_has_nothing_to_send(self, folder: Path, offbeat: Command) -> None:
        (folder / "runs").mkdir()
        code, out, errors = offbeat("track", "runs", "--to", "tensorboard")
        assert (code, out) == (2, "")
        assert errors == "offbeat: runs holds no runs: name the folder of runs that `offbeat compare` wrote\n"
        assert not list((folder / "runs").iterdir())

    def test_a_tracker_that_is_not_installed_is_one_line_before_the_run(self, folder, offbeat, monkeypatch) -> None:
        monkeypatch.setattr("offbeat.trackers.tracker.importlib.util.find_spec", lambda _: None)
        code, out, errors = offbeat("run", "tiny.toml", "--track", "wandb")
        assert (code, out, errors) == (2, "", "offbeat: wandb is not installed: pip install 'offbeat[wandb]'\n")
        assert not (folder / "runs").exists()


class TestReport:
    def test_prints_the_same_as_compare_and_writes_tables(self, folder: Path, offbeat: Command) -> None:
        small = ("--set", "stop.virtual_seconds=40", "--algorithm", "fedavg", "--algorithm", "fedbuff")
        _, compared, _ = offbeat("compare", "tiny.toml", *small)
        report = folder / "runs" / "tiny" / "report.html"
        before = files(folder / "runs")
        report.unlink()
        code, out, err = offbeat("report", "runs/tiny")
        assert (code, err) == (0, "")
        assert "Time to 50 %" in out
        printed = [line for line in _without_real_time(compared) if line and "seed 1:" not in line]
        assert printed == [line for line in _without_real_time(out) if line]
        assert files(folder / "runs") == before

        tables = ("--output", "new", "--csv", "--markdown", "--target", "0.12")
        code, out, _ = offbeat("report", "runs/tiny/fedbuff-seed1", *tables)
        assert code == 0
        names = {"report.html", "summary.csv", "history.csv", "summary.md"}
        assert {name for name in files(folder / "new") if not name.startswith("plots")} == names
        for line in ("Report: new/report.html", "CSV: new/summary.csv", "CSV: new/history.csv", "new/summary.md"):
            assert line in out
        assert "fedavg" not in out
        assert "Time to 12 %" in out


def _without_real_time(out: str) -> list[str]:
    return [line for line in out.splitlines() if "Real time" not in line]
