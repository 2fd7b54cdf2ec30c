"""Runs that are stopped: by Ctrl-C, by SIGTERM, by SIGKILL, by a full disk. They go on, and come to the same files."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from click.testing import CliRunner

from offbeat.cli.main import app
from offbeat.runs.directory import read
from tests import forks

pytestmark = pytest.mark.skipif(os.name == "nt", reason="sends signals")

KILLS = int(os.environ.get("OFFBEAT_KILLS", "2"))

# Half a second each.
SMALL = (
    "--set", "model={ name = 'mlp', hidden = [16] }", "--set", "stop.virtual_seconds=1500",
    "--checkpoint-every", "0.05",
)  # fmt: skip
# Far more than a test waits for, but with an evaluation now and then.
LONG = ("--set", "stop={ versions = 100000000 }", "--set", "evaluate.every_seconds=500", "--checkpoint-every", "0.05")

BOTH = ("--algorithm", "fedavg", "--algorithm", "fedbuff")

Started = subprocess.Popen[str] | forks.Fork
Start = Callable[..., Started]
Offbeat = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(tmp_path: Path, tiny_toml: str) -> Path:
    """The working folder; it holds tiny.toml."""
    (tmp_path / "tiny.toml").write_text(tiny_toml, encoding="utf-8")
    return tmp_path


@pytest.fixture
def start(folder: Path) -> Generator[Start]:
    """Return a function that starts ``offbeat run tiny.toml`` with options, in its own group.

    It is a fork, which starts in no time, or a program of its own where there are processes below it.
    """
    started: list[Started] = []

    def run(*options: str) -> Started:
        if "--jobs" not in options:
            started.append(forks.Fork(forks.offbeat("run", "tiny.toml", *options), folder, folder))
            return started[-1]
        command = [sys.executable, "-W", "error", "-m", "offbeat", "run", "tiny.toml", *options]
        process = subprocess.Popen(
            command, cwd=folder,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # a background job ignores it
        )  # fmt: skip
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()
        assert all_gone(process.pid), "a process was left over"


def group(leader: int) -> list[int]:
    """Return the processes of a group that still run."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,pgid=,stat="], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in listed.splitlines()]
    return [int(pid) for pid, pgid, stat in rows if int(pgid) == leader and not stat.startswith("Z")]


def all_gone(leader: int) -> bool:
    """Return whether all processes of a group end; the fork server does so once it has imported all."""
    return wait_for(lambda: not group(leader))


def wait_for(condition: Callable[[], bool], seconds: float = 120.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, tiny_toml: str) -> dict[str, bytes]:
    """The results of an uninterrupted run, made in this process, which is faster."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "tiny.toml").write_text(tiny_toml, encoding="utf-8")
    command = ["run", str(folder / "tiny.toml"), *SMALL, *BOTH, "--output", str(folder / "out")]
    assert CliRunner().invoke(app, command, catch_exceptions=False).exit_code == 0
    found = results(folder / "out")
    assert len(found) == 10
    return found


def results(output: Path) -> dict[str, bytes]:
    names = ("history.parquet", "events.parquet", "model.safetensors", "config.toml", "versions.json")
    return {str(p.relative_to(output)): p.read_bytes() for p in output.rglob("*") if p.name in names}


def checkpoints(output: Path) -> dict[Path, int]:
    found: dict[Path, int] = {}
    for path in output.glob("*.unfinished/checkpoint.safetensors"):
        try:
            found[path] = path.stat().st_mtime_ns
        except FileNotFoundError:  # the run has been finished since the listing
            continue
    return found


def has_come_further(process: Started, output: Path) -> bool:
    """Wait until there is another checkpoint than now; False if the process ended first."""
    before = checkpoints(output)

    def further() -> bool:
        now = checkpoints(output)
        return process.poll() is not None or any(before.get(path) != when for path, when in now.items())

    assert wait_for(further)
    return process.poll() is None


def test_killed_again_and_again_it_comes_to_the_same_files(
    folder: Path, start: Start, whole: dict[str, bytes], offbeat: Offbeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = (*SMALL, "--algorithm", "fedbuff", "--output", "out")
    expected = {name: content for name, content in whole.items() if name.startswith("fedbuff")}
    seed = random.SystemRandom().randrange(2**32)
    print(f"random delays from seed {seed}")  # shown if the test fails
    delays = random.Random(seed)
    kills = rounds = 0
    while kills < KILLS:
        rounds += 1
        process = start(*command)
        if has_come_further(process, folder / "out"):
            time.sleep(delays.uniform(0.0, 0.1))
            process.kill()
        if process.wait() == 0:
            # It was faster than the kill: compare, and begin another one.
            assert results(folder / "out") == expected
            shutil.rmtree(folder / "out")
        else:
            kills += 1
    monkeypatch.chdir(folder)
    code, _, err = offbeat("run", "tiny.toml", *command)
    assert (code, err) == (0, "")
    assert results(folder / "out") == expected
    assert {path.name for path in (folder / "out").iterdir()} == {"fedbuff-seed1"}
    assert rounds < 3 * KILLS + 3, "hardly a kill came in time"


@pytest.mark.long
def test_interrupted_while_processes_start_it_is_still_one_line(start: Start) -> None:
    process = start(*LONG, "--jobs", "2", "--output", "out")
    # The two runs, and the helper of Python's own.
    assert wait_for(lambda: len(group(process.pid)) >= 3)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT
    assert err.lstrip("\n") == "offbeat: stopped by SIGINT: the same command resumes\n"
    assert out == ""
    assert all_gone(process.pid)


@pytest.mark.long
def test_the_second_ctrl_c_ends_at_once(folder: Path, start: Start) -> None:
    # One visit takes minutes, so that the first one is not looked at; of few steps, since their order is made in one
    # go: a signal is only seen between two operations, and two that came within one are seen as one.
    visit = ("--set", "trainer='loop'", "--set", "model={ name = 'mlp', hidden = [2000, 2000] }")
    steps = ("--set", "local.steps=10000", "--set", "stop={ versions = 4 }")
    process = start(*visit, *steps, "--algorithm", "fedbuff", "--output", "out")
    assert wait_for((folder / "out" / "fedbuff-seed1.unfinished" / "config.toml").exists)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err.lstrip("\n") == "offbeat: interrupted: what was finished is kept\n"


def test_a_killed_one_leaves_no_process_behind(folder: Path, start: Start) -> None:
    process = start(*LONG, "--jobs", "2", *BOTH, "--output", "out")
    assert wait_for(lambda: len(checkpoints(folder / "out")) == 2)
    assert len(group(process.pid)) >= 3
    process.kill()
    process.wait()
    assert all_gone(process.pid)
    # Nobody writes any more, and what is there is whole.
    for path in (folder / "out").glob("*.unfinished"):
        assert not read(path).finished


@pytest.mark.parametrize(
    ("number", "code", "jobs", "ask"),
    [
        # As a terminal does with Ctrl-C, to all processes.
        (signal.SIGINT, 130, 1, os.killpg),
        (signal.SIGTERM, 143, 2, os.kill),
    ],
)
def test_asked_to_stop_it_says_how_to_go_on(
    number: signal.Signals,
    code: int,
    jobs: int,
    ask: Callable[[int, int], None],
    folder: Path,
    start: Start,
    whole: dict[str, bytes],
    offbeat: Offbeat,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = (*SMALL, *BOTH, "--output", "out")
    process = start(*options, *(("--jobs", str(jobs)) if jobs > 1 else ()))
    for _ in range(jobs):
        assert has_come_further(process, folder / "out")
    ask(process.pid, number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert err.lstrip("\n") == f"offbeat: stopped by {number.name}: the same command resumes\n"
    assert all_gone(process.pid)
    unfinished = list((folder / "out").glob("*.unfinished"))
    assert unfinished
    runs = [read(path) for path in unfinished]
    assert not any(run.finished for run in runs)
    # One that had only just begun was perhaps not evaluated yet.
    assert any(len(run.history["seconds"]) > 0 for run in runs)
    # A run that was finished before is whole, and is kept; one that came to its end while it was asked, without a line.
    finished = list((folder / "out").glob("*-seed1"))
    assert len(finished) >= out.count(", seed 1: ")
    assert all(read(path).finished for path in finished)
    monkeypatch.chdir(folder)
    assert offbeat("run", "tiny.toml", *options)[0] == 0
    assert results(folder / "out") == whole


# In a name space of its own, so that the disk is gone with the shell, whatever becomes of the test.
SMALL_DISK = """
mount -t tmpfs -o size=64k tmpfs disk || exit 77
"$@" > /dev/null
code=$?
cp -r disk/out full
mount -o remount,size=64m disk
"$@" > /dev/null || exit 1
cp -r disk/out kept
exit $code
"""


def test_a_full_disk_is_one_line_and_what_was_written_before_survives(folder: Path, whole: dict[str, bytes]) -> None:
    (folder / "disk").mkdir()
    if shutil.which("unshare") is None or os.geteuid() != 0:
        pytest.skip("only root can make a small disk")
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("this machine lets nobody make a small disk")
    command = [sys.executable, "-m", "offbeat", "run", "tiny.toml", *SMALL, *BOTH, "--output", "disk/out"]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", SMALL_DISK, "sh", *command],
        cwd=folder, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    if done.returncode == 77:
        pytest.skip("this machine lets nobody make a small disk")
    assert done.returncode == 2
    assert done.stderr.startswith("offbeat: cannot write the run into disk/out/fed")
    assert "No space left on device" in done.stderr
    assert "run it again" in done.stderr
    assert done.stderr.count("\n") == 1
    (path,) = checkpoints(folder / "full")
    assert len(read(path.parent).events["client"]) > 0
    assert results(folder / "kept") == whole
