"""Stores that cannot be reached while a server starts or stands by."""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import chain, repeat
from pathlib import Path

import pytest
import sqlalchemy as sa
import torch
from offbeat_core.errors import OffbeatError

from offbeat.service.engine import standby, start_up
from offbeat.service.front import front
from offbeat.service.log import log_writer
from offbeat.service.log.log import LogUnavailableError, ReplacedError, Row, UnknownOutcomeError
from offbeat.service.log.open_log import open_log
from offbeat.service.log.sql_log import SqlLog
from offbeat.service.store.disk import UnreachableFilesError
from offbeat.service.store.shared_files import SharedFiles
from offbeat.service.store_settings import StoreSettings
from tests.postgres import postgres as postgres
from tests.postgres import store as store
from tests.service.conftest import LENGTH, running


@pytest.fixture(autouse=True)
def _leads_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby, "_SILENT_SECONDS", 0.5)


def fail(monkeypatch: pytest.MonkeyPatch, kind: str, outcomes: Iterator[bool]) -> None:
    """Let downloads of a kind of file fail where ``outcomes`` says so."""
    download = SharedFiles.download

    def flaky(files: SharedFiles, name: str, digest: str, path: Path) -> None:
        if name.startswith(kind) and next(outcomes, False):
            raise UnreachableFilesError("s3://bucket: connection refused")
        download(files, name, digest, path)

    monkeypatch.setattr(SharedFiles, "download", flaky)


def fail_appends(monkeypatch: pytest.MonkeyPatch, error: type[Exception], outcomes: Iterator[bool]) -> None:
    """Let appends fail where ``outcomes`` says so; the first one begins the epoch."""
    append = SqlLog.append

    async def flaky(log: SqlLog, rows: Sequence[Row], *, after: tuple[int, int]) -> None:
        if next(outcomes, False):
            raise error("no connection")
        await append(log, rows, after=after)

    monkeypatch.setattr(SqlLog, "append", flaky)


def epochs(store: StoreSettings) -> list[int]:
    with closing(open_log(store.log)) as log:
        rows = log.read_now(sa.true())
    assert [row.number for row in rows] == list(range(1, len(rows) + 1))
    return [row.epoch for row in rows]


def test_a_server_that_cannot_read_an_update_now_tries_again_and_skips_none(
    tmp_path: Path, store: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "SMALL", 0)

    async def write_nothing() -> None:
        pass

    with running(tmp_path / "one", store=store) as server:
        peer = server.enrol()
        for number in range(3):
            visit = peer.check_in()
            assert visit is not None
            assert peer.send(visit, torch.full((LENGTH,), float(number)))["counted"]
        model = server.service.engine.coordinator.algorithm.model
        monkeypatch.setattr(server.checkpoints, "write", write_nothing)  # as if it were killed
    outcomes = iter([True, False, False, True, True, False])
    fail(monkeypatch, "updates/", outcomes)
    with running(tmp_path / "two", store=store) as server:
        assert server.service.engine.coordinator.statistics.counted == 3
        assert server.service.engine.tally.total().counted == 3
        assert torch.equal(server.service.engine.coordinator.algorithm.model, model)
    assert list(outcomes) == []


def test_a_store_that_cannot_be_reached_at_a_start_is_named(
    tmp_path: Path, store: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path / "one", store=store):
        pass
    fail(monkeypatch, "models/", iter([True]))
    line = r"^the store of large files cannot be used: s3://bucket: connection refused; start the server again once"
    with pytest.raises(OffbeatError, match=line), running(tmp_path / "two", store=store):
        pass
    for name, value in (("ENDPOINT_URL", "http://127.0.0.1:1"), ("ALLOW_HTTP", "true"), ("REGION", "x")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
    elsewhere = store.model_copy(update={"blobs": "s3://bucket/prefix"})
    line = r"^cannot write to s3://bucket/prefix: the blob \S+: connection refused"
    with pytest.raises(OffbeatError, match=line), running(tmp_path / "two", store=elsewhere):
        pass


def test_a_log_that_cannot_be_read_at_a_start_is_one_line(
    tmp_path: Path, store: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object) -> None:
        raise LogUnavailableError("server closed the connection unexpectedly")

    monkeypatch.setattr(SqlLog, "read_now", read)
    line = r"^the log cannot be used: server closed"
    with pytest.raises(OffbeatError, match=line), running(tmp_path / "one", store=store):
        pass


@pytest.mark.parametrize("error", [LogUnavailableError, UnknownOutcomeError])
def test_a_new_leader_whose_first_appends_fail_tries_again(
    tmp_path: Path, store: StoreSettings, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    monkeypatch.setattr(log_writer, "_RETRY_SECONDS", 0.05)
    fail_appends(monkeypatch, error, iter([False, True, True]))
    with running(tmp_path / "one", store=store) as server:
        assert server.enrol().check_in() is not None
    assert epochs(store)[0] == 1


def test_a_new_leader_that_cannot_append_ends_in_a_line_and_the_next_one_begins_the_run(
    tmp_path: Path, store: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_up, "_PATIENCE_SECONDS", 0.3)
    monkeypatch.setattr(log_writer, "_RETRY_SECONDS", 0.05)
    with monkeypatch.context() as patched:
        fail_appends(patched, LogUnavailableError, chain([False], repeat(True)))
        line = r"^the server's log cannot be written \(no connection\): its operator must mend that, [^\n]*/one$"
        began = time.monotonic()
        with pytest.raises(OffbeatError, match=line), running(tmp_path / "one", store=store):
            pass
        assert 0.3 < time.monotonic() - began < 10
    assert epochs(store) == [1]
    with running(tmp_path / "two", store=store) as server:  # a server that stood by
        assert server.enrol().check_in() is not None
    with running(tmp_path / "one", store=store) as server:  # and the first one again
        assert server.service.engine.coordinator.statistics.assigned == 1
    assert set(epochs(store)) == {1, 2, 3}


def test_a_server_that_is_replaced_while_it_starts_says_so(
    tmp_path: Path, store: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_appends(monkeypatch, ReplacedError, iter([False, True]))
    line = r"^another server leads now, so this one ends: no connection$"
    with pytest.raises(OffbeatError, match=line), running(tmp_path / "one", store=store):
        pass


def test_a_new_leader_that_cannot_store_its_checkpoint_leads_with_the_last_one(
    tmp_path: Path, store: StoreSettings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    upload, outcomes = SharedFiles.upload, iter([True, True])

    async def flaky(files: SharedFiles, path: Path, name: str) -> None:
        if name.startswith("checkpoints/") and next(outcomes, False):
            raise UnreachableFilesError("s3://bucket: connection refused")
        await upload(files, path, name)

    monkeypatch.setattr(SharedFiles, "upload", flaky)
    line = r"^the store of large files cannot be used: s3://bucket: connection refused; start the server again once"
    with pytest.raises(OffbeatError, match=line), running(tmp_path / "one", store=store):
        pass  # nobody could follow a run without a checkpoint
    outcomes = iter(())
    with running(tmp_path / "one", store=store) as server:
        peer = server.enrol()
        first = peer.check_in()
    outcomes = iter([True])
    with running(tmp_path / "two", store=store) as server:
        assert first is not None
        assert server.peer(peer.token).send(first, torch.zeros(LENGTH))["counted"]
        server.checkpoint()
    lines = [vars(record)["fields"] for record in caplog.records if record.msg == "blobs_unavailable"]
    assert lines == [{"problem": "s3://bucket: connection refused"}]
    with running(tmp_path / "three", store=store) as server:
        assert server.service.engine.coordinator.statistics.counted == 1
