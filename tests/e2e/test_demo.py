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

SETTINGS = "data='digits', clients=2, versions=40, steps=40"
CODE = f"""
import sys
from functools import partial
from pathlib import Path
from offbeat.cli.demo import run_demo
run_demo(partial(print, flush=True), Path(sys.argv[1]), {SETTINGS})
"""

Start = Callable[[], subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Generator[Start]:
    """Return a function that starts a demo in the folder ``demo``, in a process group of its own."""
    started: list[subprocess.Popen[str]] = []

    def begin() -> subprocess.Popen[str]:
        command = [sys.executable, "-W", "error", "-c", CODE, str(tmp_path / "demo")]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True))
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
    demo = start()
    output, _ = demo.communicate()
    assert demo.returncode == 0
    check_gone(demo.pid)

    lines = output.splitlines()
    (accuracy,) = re.findall(r"^Accuracy on 364 test examples: ([\d.]+)%$", output, re.MULTILINE)
    assert float(accuracy) > 85
    assert "2 clients have enrolled" in lines
    assert "Killed: 2 clients, 2 times the server" in output
    killed = [line.split() for line in lines if line.startswith("Killed ") and " at version " in line]
    assert [name for _, name, *_ in killed] == ["client-0", "server", "client-1", "server"]
    resumed = [int(line.split()[-1]) for line in lines if line.startswith("The server resumes at version ")]
    assert all(now >= int(words[4]) for now, words in zip(resumed, killed[1::2], strict=True))

    with closing(sqlite3.connect(tmp_path / "demo" / "server" / "offbeat.sqlite")) as database:
        rows = database.execute("SELECT arguments FROM log WHERE name = 'receive'").fetchall()
    received = [(arguments["client"], arguments["visit"]) for (text,) in rows if (arguments := json.loads(text))]
    assert len(received) == len(set(received)) == 40
    assert {client for client, _ in received} == {0, 1}


@pytest.mark.parametrize(
    ("number", "send"), [(signal.SIGTERM, os.kill), (signal.SIGINT, os.killpg)], ids=["SIGTERM", "Ctrl-C"]
)
def test_a_signal_ends_all_of_it(start: Start, tmp_path: Path, number: int, send: Callable[[int, int], None]) -> None:
    demo = start()
    assert demo.stdout is not None
    first_line = "A server and 2 clients" if number == signal.SIGINT else "The server listens"
    while not demo.stdout.readline().startswith(first_line):
        assert demo.poll() is None
    while not [*tmp_path.glob("demo/server.log")]:  # there is a process to be ended
        time.sleep(0.01)
    send(demo.pid, number)
    assert demo.wait() == 128 + number
    check_gone(demo.pid)
