"""A start that fails at any step is one line, and leaves no thread, socket or lock behind."""

import errno
import os
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from offbeat_core.errors import OffbeatError
from sqlalchemy.exc import OperationalError

from offbeat.algorithms import FedAsync
from offbeat.service.engine import replay, start_up
from offbeat.service.log.log import LogUnavailableError
from offbeat.service.server import run_service
from offbeat.service.server import serving as server_module
from offbeat.service.store import store as store_module
from tests.service.conftest import running

STEPS = [
    (store_module, "_close_to_others"),
    (store_module, "open_log"),
    (server_module, "listen"),
    (replay, "load_checkpoint"),
    (start_up, "lead_at_once"),
    (start_up, "LogWriter"),
    (start_up, "Engine"),
    (start_up, "clean_up"),
    (start_up, "_resume_evaluations"),
    (start_up, "CheckpointWriter"),
    (start_up.CheckpointWriter, "write"),
    (run_service, "AuditLog"),
    (run_service, "Uploads"),
    (server_module, "folder_token"),
    (server_module, "Connections"),
    (run_service, "make_app"),
    (server_module, "HttpServer"),
    (run_service, "CheckpointSchedule"),
    (run_service, "EvaluationQueue"),
    (run_service, "LeaseTimer"),
    (server_module, "write_address"),
    (server_module, "Listening"),
]
ERRORS = [
    OSError(errno.ENOSPC, "No space left on device"),
    OperationalError("SELECT", None, sqlite3.OperationalError("database is locked")),
    OffbeatError("no"),
    LogUnavailableError("no connection"),
]
SETTINGS: dict[str, Any] = {"evaluate_every": 1, "evaluate_on_clients": 1, "evaluate_command": ["cat"]}


@pytest.fixture(scope="module", autouse=True)
def first_server(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Run a server once: what the libraries open for the whole process is not a leak."""
    with running(tmp_path_factory.mktemp("first") / "server"):
        pass


def held() -> tuple[set[str], set[str]]:
    """Return the server's threads, and all sockets and files of its folder that are open."""
    threads = {thread.name for thread in threading.enumerate() if thread.name.startswith(("log writer", "aggregator"))}
    files: set[str] = set()
    for path in Path("/proc/self/fd").iterdir():
        try:
            target = str(path.readlink())
        except OSError:  # that of the listing itself
            continue
        if target.startswith("socket:") or "/server/" in target:
            files.add(target)
    return threads, files


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks at /proc")
@pytest.mark.parametrize("number", range(len(STEPS)), ids=lambda number: STEPS[number][1])
def test_a_failed_step_leaves_nothing(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, name = STEPS[number]
    hit = False

    def fail(*_: object, **__: object) -> None:
        nonlocal hit
        hit = True
        raise ERRORS[number % len(ERRORS)]

    before = held()
    with monkeypatch.context() as patched:
        patched.setattr(place, name, fail)
        with pytest.raises(OffbeatError), running(tmp_path / "server", **SETTINGS):
            pytest.fail("it started")
    assert hit
    threads, files = held()
    assert threads <= before[0]
    assert files <= before[1]
    store = store_module.Store(tmp_path / "server")  # nobody holds the lock
    store.close()


def test_a_folder_after_a_failed_start_can_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place, name in STEPS[::4]:
        with monkeypatch.context() as patched:
            patched.setattr(place, name, lambda *_, **__: (_ for _ in ()).throw(OSError(errno.EIO, "no")))
            with pytest.raises(OffbeatError), running(tmp_path / "server", **SETTINGS):
                pytest.fail("it started")
    with running(tmp_path / "server", **SETTINGS) as server:
        assert server.enrol().check_in() is not None


def test_a_port_in_use_a_used_folder_and_another_run_are_one_line(tmp_path: Path) -> None:
    with running(tmp_path / "server", config={"algorithm": "fedbuff"}) as server:
        port = int(server.url.rpartition(":")[2])
        busy = {"other": f"cannot listen at 127.0.0.1:{port}: it is in use", "server": "is in use by another server"}
        for folder, words in busy.items():
            with pytest.raises(OffbeatError, match=words), running(tmp_path / folder, port=port):
                pytest.fail("it started")
    other: dict[str, Any] = {"config": {"algorithm": "fedasync"}}
    with (
        pytest.raises(OffbeatError, match=r"a run with other settings \(algorithm\)"),
        running(tmp_path / "server", FedAsync, **other),
    ):
        pytest.fail("it started")


def test_a_database_that_another_program_locks_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(tmp_path / "server"):
        pass
    with closing(sqlite3.connect(tmp_path / "server" / "offbeat.sqlite", isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(OffbeatError, match="database is locked"), running(tmp_path / "server"):
            pytest.fail("it started")


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="needs a user for whom permissions hold")
def test_a_folder_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir(mode=0o000)
    with (
        pytest.raises(OffbeatError, match=r"folder .*: Permission denied"),
        running(tmp_path / "server"),
    ):
        pytest.fail("it started")
