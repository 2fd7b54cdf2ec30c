"""Sweeps that are killed at random moments come to the same trials and files."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from offbeat.cli.main import app
from offbeat.runs import run_all
from tests import forks

pytestmark = pytest.mark.skipif(os.name == "nt", reason="sends signals")

KILLS = int(os.environ.get("OFFBEAT_KILLS", "2"))
Offbeat = Callable[..., tuple[int, str, str]]

# Eleven trials: the last one is chosen from the results of ten, for any number of jobs.
SWEEP = ("sweep", "tiny.toml", "--over", "local.lr=0.01:1:log", "--trials", "11", "--algorithm", "fedbuff")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, tiny_toml: str) -> dict[str, bytes]:
    """The files of a sweep that nobody kills."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "tiny.toml").write_text(tiny_toml, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        CliRunner().invoke(app, [*SWEEP, "--output", "out"], catch_exceptions=False)
    return files(folder / "out")


def files(folder: Path) -> dict[str, bytes]:
    """Return all files but those that hold times."""
    timed = ("timing.json", "report.html", "optuna.journal", ".sweep.lock")  # the report names its command
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name not in timed]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def progress_of(folder: Path) -> int:
    """Return how many runs have begun or ended."""
    return sum(1 for _ in folder.glob("*-seed*"))


def wait_for_more(folder: Path, process: subprocess.Popen[str] | forks.Fork) -> bool:
    """Wait until another run has begun or ended; False if the process has ended."""
    before = progress_of(folder)
    while process.poll() is None:
        if progress_of(folder) != before:
            return True
        time.sleep(0.005)
    return False


@pytest.fixture
def folder(tmp_path: Path, tiny_toml: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder; it holds tiny.toml."""
    (tmp_path / "tiny.toml").write_text(tiny_toml, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def start(folder: Path, jobs: int) -> subprocess.Popen[str] | forks.Fork:
    if jobs == 1:  # a fork starts in no time
        return forks.Fork(forks.offbeat(*SWEEP, "--output", "out"), folder, folder)
    command = [sys.executable, "-W", "error", "-m", "offbeat", *SWEEP, "--output", "out", "--jobs", str(jobs)]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


@pytest.mark.parametrize("jobs", [pytest.param(1, marks=pytest.mark.long), 2])
def test_no_trial_is_lost_or_double(jobs: int, folder: Path, whole: dict[str, bytes], offbeat: Offbeat) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"random delays from seed {seed}")  # shown if the test fails
    delays = random.Random(seed)
    for _ in range(-(-KILLS // 2)):  # for each number of jobs
        process = start(folder, jobs)
        if wait_for_more(folder / "out", process):
            time.sleep(delays.uniform(0.0, 0.5))
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    code, _, err = offbeat(*SWEEP, "--output", "out")  # for any number of jobs
    assert (code, err) == (0, "")
    assert files(folder / "out") == whole
    assert len(list((folder / "out").glob("*-seed*"))) == 11
    assert not (folder / "out" / ".sweep.lock").exists()


def test_a_signal_says_how_to_resume(folder: Path, offbeat: Offbeat, monkeypatch: pytest.MonkeyPatch) -> None:
    carry_out = run_all.carry_out

    def interrupted(*arguments: Any, **options: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        carry_out(*arguments, **options)

    monkeypatch.setattr(run_all, "carry_out", interrupted)
    code, _, err = offbeat(*SWEEP, "--output", "out")
    assert (code, err) == (128 + signal.SIGTERM, "offbeat: stopped by SIGTERM: the same command resumes\n")
    assert list((folder / "out").glob("*-seed1.unfinished"))
