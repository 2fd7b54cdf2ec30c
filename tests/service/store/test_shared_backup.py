"""A shared store is copied, while servers use it, into a folder that a server alone starts from."""

import asyncio
import threading
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
import torch
from offbeat_core.errors import OffbeatError

from offbeat.algorithms import FedBuff
from offbeat.algorithms.components.weights import constant
from offbeat.service.engine import server_checkpoint
from offbeat.service.front import front
from offbeat.service.log.open_log import open_log, sqlite_url
from offbeat.service.store import shared_backup
from offbeat.service.store.shared_backup import back_up_shared
from offbeat.service.store.shared_files import SharedFiles
from offbeat.service.store_settings import StoreSettings
from tests.postgres import postgres as postgres
from tests.postgres import store as store
from tests.service.conftest import LENGTH, Peer, running

ONES = torch.ones(LENGTH)


def plain() -> FedBuff:
    """Every update weighs the same, so that the model says how many there were."""
    return FedBuff(buffer_size=2, concurrency=4, staleness=constant())


@pytest.mark.parametrize(
    ("small", "step"),
    [(1 << 16, "copy_bodies"), (0, "_copy_files"), (0, "_copy")],
    ids=["rows", "blobs", "a-blob-whose-path-is-known"],
)
def test_a_checkpoint_that_deletes_during_a_copy_takes_nothing_from_it(
    tmp_path: Path, store: StoreSettings, monkeypatch: pytest.MonkeyPatch, small: int, step: str
) -> None:
    monkeypatch.setattr(front, "SMALL", small)
    monkeypatch.setattr(server_checkpoint, "_STANDBY_SECONDS", 0.0)
    with running(tmp_path / "one", plain, store=store, checkpoint_seconds=1e6) as server:
        peer = server.enrol()
        for _ in range(3):
            visit = peer.check_in()
            assert visit is not None
            peer.send(visit, ONES)
        if small:  # a checkpoint deletes updates in rows before files
            monkeypatch.setattr(SharedFiles, "delete", lambda *_: asyncio.sleep(0))
        work, calls = getattr(shared_backup, step), list[str]()

        def after_a_checkpoint(*arguments: object) -> None:
            if not calls:
                server.checkpoint()
            calls.append(step)
            work(*arguments)

        monkeypatch.setattr(shared_backup, step, after_a_checkpoint)
        back_up_shared(tmp_path / "one", store, tmp_path / "copy")
        assert (len(calls) == 1) is bool(small)  # without rows, the files of the new checkpoint are copied
    with running(tmp_path / "copy", plain) as server:
        assert server.service.engine.coordinator.statistics.counted == 3


def test_a_server_alone_continues_from_a_copy_made_while_checkpoints_delete(
    tmp_path: Path, store: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "SMALL", 0)
    monkeypatch.setattr(server_checkpoint, "_STANDBY_SECONDS", 0.0)
    with running(tmp_path / "one", plain, store=store, checkpoint_seconds=0.1) as server:
        peers = [server.enrol() for _ in range(5)]
        stop = threading.Event()

        def work(peer: Peer) -> None:
            while not stop.is_set():
                if (visit := peer.check_in(0.1)) is not None:
                    peer.send(visit, ONES)

        threads = [threading.Thread(target=work, args=(peer,)) for peer in peers]
        for thread in threads:
            thread.start()
        copies = []
        for number in range(2):
            before, copy = server.service.status().counted, tmp_path / "copies" / str(number)
            copies.append((copy, before, back_up_shared(tmp_path / "one", store, copy)))
        stop.set()
        for thread in threads:
            thread.join()
        with closing(open_log(store.log)) as log:
            rows = log.read_now(sa.true())
    for copy, before, last in copies:
        with closing(open_log(sqlite_url(copy / "offbeat.sqlite"))) as log:
            strip = lambda row: (row.number, row.epoch, row.owner, row.name, row.arguments, row.entry)  # noqa: E731
            assert list(map(strip, log.read_now(sa.true()))) == list(map(strip, rows[:last]))
        with running(copy, plain) as server:
            engine = server.service.engine
            counted = engine.coordinator.statistics.counted
            assert counted >= before
            version = counted // 2
            assert engine.coordinator.algorithm.version == version
            assert torch.equal(engine.coordinator.algorithm.model, torch.full((LENGTH,), -float(version)))
            peer = server.peer(peers[0].token)
            visit = peer.check_in()
            assert visit is None or peer.send(visit, ONES)["counted"]


def test_a_copy_needs_an_empty_folder_and_a_run(tmp_path: Path, store: StoreSettings) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(OffbeatError, match="is not empty: take another folder"):
        back_up_shared(tmp_path / "one", store, tmp_path / "full")
    with pytest.raises(OffbeatError, match=r"^postgresql://.* does not hold a run: start a server"):
        back_up_shared(tmp_path / "one", store, tmp_path / "copy")
