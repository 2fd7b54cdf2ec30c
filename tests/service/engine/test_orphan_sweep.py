"""Shared files that a killed server has left are deleted an hour after a leader has seen them."""

import asyncio
from pathlib import Path

import pytest
import torch

from offbeat.service.blobs.folder_blobs import FolderBlobs
from offbeat.service.engine import orphan_sweep, server_checkpoint, standby
from offbeat.service.engine.orphan_sweep import OrphanSweep
from offbeat.service.front import front
from offbeat.service.refusal import Refusal
from offbeat.service.store.shared_files import SharedFiles
from offbeat.service.store_settings import StoreSettings
from tests.postgres import postgres as postgres
from tests.postgres import store as store
from tests.service.conftest import LENGTH, running


def test_a_file_is_deleted_once_it_has_had_no_name_for_an_hour(tmp_path: Path) -> None:
    blobs, needed, is_replaced = FolderBlobs(tmp_path / "blobs"), {"updates/a"}, False

    async def confirm() -> None:
        if is_replaced:
            raise Refusal("stopping", "another server leads")

    async def names() -> set[str]:
        return {name async for name in blobs.names("run")}

    async def look() -> None:
        nonlocal is_replaced
        sweep = OrphanSweep(SharedFiles(blobs, "run", tmp_path), lambda: needed, confirm)
        for name in ("run/updates/a", "run/updates/b", "run/updates/c", "other/updates/d"):
            await blobs.create(name, b"x")
        await sweep.look(0.0)
        needed.add("updates/b")  # its row has come
        await sweep.look(3500.0)
        assert len(await names()) == 3
        needed.clear()
        await sweep.look(4200.0)
        assert await names() == {"run/updates/a", "run/updates/b"}  # which have just lost their names
        is_replaced = True
        with pytest.raises(Refusal):
            await sweep.look(8000.0)
        assert len(await names()) == 2
        is_replaced = False
        await sweep.look(8000.0)  # too early after the last look
        assert len(await names()) == 2
        await sweep.look(9000.0)
        assert await names() == set()
        assert [name async for name in blobs.names("other")] == ["other/updates/d"]

    asyncio.run(look())


def test_a_leader_deletes_what_nothing_names_and_nothing_else(
    tmp_path: Path, store: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name, value in (
        (orphan_sweep, "_LOOK_SECONDS", 0.0),
        (orphan_sweep, "_AGE_SECONDS", 0.0),
        (standby, "_SILENT_SECONDS", 0.3),
        (server_checkpoint, "_STANDBY_SECONDS", 1e6),
        (front, "SMALL", 0),
    ):
        monkeypatch.setattr(module, name, value)
    with running(tmp_path / "one", store=store, checkpoint_seconds=1e6) as server:
        run = tmp_path / "blobs" / str(server.service.engine.state.run.run_id)
        (run / "updates").mkdir(exist_ok=True)
        (run / "updates" / "orphan").write_bytes(b"x")
        peer = server.enrol()
        for number in range(3):
            visit = peer.check_in()
            assert visit is not None
            assert peer.send(visit, torch.full((LENGTH,), float(number)))["counted"]
            before = {path for path in run.rglob("*") if path.is_file()} - {run / "updates" / "orphan"}
            server.checkpoint()
            assert before <= set(run.rglob("*"))  # a standby may need them
        assert not (run / "updates" / "orphan").exists()
    with running(tmp_path / "two", store=store) as server:
        assert server.service.engine.coordinator.statistics.counted == 3
