"""The demo: real processes, kills on the way, and nothing left behind."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.name == "nt", reason="sends signals")

# One kill of each kind: every one more starts a process.
CODE = """
import sys
{first}
from functools import partial
from pathlib import Path
from offbeat.cli.demo.demo_run import DemoRun
from offbeat.cli.demo.{module} import {function}
kill = DemoRun.kill
DemoRun.kill = lambda run, victims: kill(run, victims[:{kinds}])
{function}(partial(print, flush=True), Path(sys.argv[1]), data="digits", {settings})
"""
# Processes are forks, which import nothing again; those that a signal ends are real ones.
FORKS = """
from offbeat.cli.demo import processes
from tests.e2e import forked_command
processes.subprocess = forked_command
"""
SETTINGS = "clients=2, versions=10, steps=40"
REAL = CODE.format(first="", module="demo_run", function="run_demo", kinds=2, settings=SETTINGS)
PLAIN = CODE.format(first=FORKS, module="demo_run", function="run_demo", kinds=2, settings=SETTINGS)
PRIVATE = CODE.format(
    first=FORKS, module="private", function="run_private_demo", kinds=3, settings="clients=3, versions=9, steps=40"
)

Start = Callable[[str], subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Generator[Start]:
    """Return a function that starts a demo in the folder ``demo``, in a process group of its own."""
    started: list[subprocess.Popen[str]] = []

    def begin(code: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-W", "error", "-c", code, str(tmp_path / "demo")]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(command, stdout=pipe, text=True, start_new_session=True, env=environment))
        return started[-1]

    yield begin
    for process in started:
        if is_there(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        with process:  # closes its pipe and waits for it
            pass


def is_there(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def check_gone(group: int) -> None:
    """Check that no process of a group is left, once the system has noted the end of those without a parent."""
    end = time.monotonic() + 5
    while is_there(group):
        assert time.monotonic() < end, "a process was left over"
        time.sleep(0.05)


def test_it_learns_while_its_processes_are_killed_and_leaves_none(start: Start, tmp_path: Path) -> None:
    demo = start(PLAIN)
    output, _ = demo.communicate()
    assert demo.returncode == 0
    check_gone(demo.pid)

    lines = output.splitlines()
    (accuracy,) = re.findall(r"^Accuracy on 364 test examples: ([\d.]+)%$", output, re.MULTILINE)
    assert float(accuracy) > 60  # of ten classes; whose updates come first differs
    assert "2 clients have enrolled" in lines
    killed = [line.split() for line in lines if line.startswith("Killed ") and " at version " in line]
    assert [name for _, name, *_ in killed] == ["client-0", "server"]
    (resumed,) = re.findall(r"^The server resumes at version (\d+)$", output, re.MULTILINE)
    assert int(resumed) >= int(killed[1][4])

    with closing(sqlite3.connect(tmp_path / "demo" / "server" / "offbeat.sqlite")) as database:
        rows = database.execute("SELECT arguments FROM log WHERE name = 'receive'").fetchall()
    received = [(arguments["client"], arguments["visit"]) for (text,) in rows if (arguments := json.loads(text))]
    assert len(received) == len(set(received)) == 10
    assert {client for client, _ in received} == {0, 1}


@pytest.mark.long
def test_the_private_one_learns_from_sums_and_loses_no_update(start: Start, tmp_path: Path) -> None:
    demo = start(PRIVATE)
    output, _ = demo.communicate()
    assert demo.returncode == 0
    check_gone(demo.pid)

    def found(pattern: str) -> tuple[float, ...]:
        (line,) = re.findall(f"^{pattern}$", output, re.MULTILINE)
        return tuple(float(number) for number in ((line,) if isinstance(line, str) else line))

    assert found(r"Accuracy on 364 test examples: ([\d.]+)%")[0] > 60
    (counted,) = found(r"(\d+) updates counted; the server has seen none of them, .*")
    assert found(r"(\d+) of (\d+) sums that the helper opened have (\d+) or more distinct clients") == (9, 9, 2)
    total, in_sums, waiting = found(r"No update was lost: of (\d+) with a receipt, (\d+) are .* and (\d+) wait .*")
    assert total == in_sums + waiting <= counted
    killed = re.findall(r"^Killed (\S+) at version", output, re.MULTILINE)
    assert killed == ["client-1", "helper", "server"]

    with closing(sqlite3.connect(tmp_path / "demo" / "helper" / "helper.sqlite")) as database:
        opened = database.execute("SELECT batch, client FROM seeds").fetchall()
        participations = database.execute("SELECT participations FROM clients").fetchall()
    assert len(opened) == sum(count for (count,) in participations) >= in_sums
    assert {batch for batch, _ in opened} == set(range(1, 10))


@pytest.mark.parametrize(
    ("number", "send", "line"),
    [
        pytest.param(signal.SIGTERM, os.kill, "The server listens", marks=pytest.mark.long),
        (signal.SIGINT, os.killpg, "A server and 2 clients"),  # while it starts
    ],
    ids=["SIGTERM", "Ctrl-C"],
)
def test_a_signal_ends_all_of_it(
    start: Start, tmp_path: Path, number: int, send: Callable[[int, int], None], line: str
) -> None:
    demo = start(REAL)
    assert demo.stdout is not None
    while not demo.stdout.readline().startswith(line):
        assert demo.poll() is None
    while not [*tmp_path.glob("demo/server.log")]:  # there is a process to be ended
        time.sleep(0.01)
    send(demo.pid, number)
    assert demo.wait() == 128 + number
    check_gone(demo.pid)
