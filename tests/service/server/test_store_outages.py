"""Stores that cannot be reached while a server starts or stands by."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from offbeat_core.errors import OffbeatError

from offbeat.service.engine import standby
from offbeat.service.front import front
from offbeat.service.log.log import LogUnavailableError
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
    line = r"^the store of large files cannot be used: s3://bucket: connection refused$"
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
