"""Sweeps that are killed at random moments come to the same trials and files."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from offbeat.cli.main import app

pytestmark = pytest.mark.skipif(os.name == "nt", reason="sends signals")

KILLS = int(os.environ.get("OFFBEAT_KILLS", "2"))
# Twelve trials: the last two are chosen from the results of ten.
SWEEP = ("sweep", "tiny.toml", "--over", "local.lr=0.01:1:log", "--trials", "12", "--algorithm", "fedbuff")


def files(folder: Path) -> dict[str, bytes]:
    """Return all files but those that hold times."""
    timed = ("timing.json", "optuna.journal", ".sweep.lock")
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name not in timed]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def progress_of(folder: Path) -> int:
    """Return how many runs have begun or ended."""
    return sum(1 for _ in folder.glob("*-seed*"))


def wait_for_more(folder: Path, process: subprocess.Popen[str]) -> bool:
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


def start(folder: Path, jobs: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-m", "offbeat", *SWEEP, "--output", "out", "--jobs", str(jobs)]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


@pytest.mark.parametrize("jobs", [1, 2])
def test_no_trial_is_lost_or_double(jobs: int, folder: Path) -> None:
    whole = CliRunner().invoke(app, [*SWEEP, "--output", "whole", "--jobs", str(jobs)], catch_exceptions=False)
    assert whole.exit_code == 0
    seed = random.SystemRandom().randrange(2**32)
    print(f"random delays from seed {seed}")  # shown if the test fails
    delays = random.Random(seed)
    for _ in range(-(-KILLS // 2)):  # for each number of jobs
        process = start(folder, jobs)
        if wait_for_more(folder / "out", process):
            time.sleep(delays.uniform(0.0, 0.5))
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    process = start(folder, jobs)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, ""), out
    assert files(folder / "out") == files(folder / "whole")
    assert not (folder / "out" / ".sweep.lock").exists()


def test_ctrl_c_says_how_to_resume(folder: Path) -> None:
    process = start(folder, 1)
    assert wait_for_more(folder / "out", process)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (
        128 + signal.SIGTERM,
        "offbeat: stopped by SIGTERM: the same command resumes\n",
    )
