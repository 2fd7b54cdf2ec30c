"""A stopped server's run is moved to a shared store and back, with all rows and the same model."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
import torch
from offbeat_core.errors import OffbeatError

from offbeat.algorithms import FedBuff
from offbeat.algorithms.components.weights import constant
from offbeat.service.engine import standby
from offbeat.service.front import front
from offbeat.service.log.log import Row
from offbeat.service.log.open_log import open_log, sqlite_url
from offbeat.service.server.move import move_to_folder, move_to_store
from offbeat.service.server.stopped_server import status
from offbeat.service.store.backup import back_up
from offbeat.service.store_settings import StoreSettings
from tests.object_store import object_store as object_store
from tests.postgres import postgres as postgres
from tests.postgres import store as store
from tests.service.conftest import LENGTH, Peer, Served, running
from tests.service.store.test_earlier_form import ANOTHER_FORM

Command = Callable[..., tuple[int, str, str]]
NUMBERS = torch.Generator().manual_seed(5)


def plain() -> FedBuff:
    return FedBuff(buffer_size=2, concurrency=4, staleness=constant())


def work(peer: Peer, updates: int) -> None:
    for _ in range(updates):
        visit = peer.check_in()
        assert visit is not None
        assert peer.send(visit, torch.randn(LENGTH, generator=NUMBERS))["counted"]


def facts(server: Served) -> tuple[int, bytes]:
    algorithm = server.service.engine.coordinator.algorithm
    return algorithm.version, algorithm.model.numpy().tobytes()


def rows_of(place: Path | StoreSettings) -> list[tuple[object, ...]]:
    url = sqlite_url(place / "offbeat.sqlite") if isinstance(place, Path) else place.log
    with closing(open_log(url)) as log:
        return [_lasting(row) for row in log.read_now(sa.true())]


def _lasting(row: Row) -> tuple[object, ...]:
    return (row.number, row.epoch, row.owner, row.name, row.arguments, row.digest, row.blob, row.entry, row.head)


@pytest.fixture(autouse=True)
def _leads_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby, "_SILENT_SECONDS", 0.5)


@pytest.fixture
def bucket(object_store: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    monkeypatch.setenv("AWS_ENDPOINT_URL", object_store)
    for name, value in (("ALLOW_HTTP", "true"), ("ACCESS_KEY_ID", "any"), ("SECRET_ACCESS_KEY", "any")):
        monkeypatch.setenv(f"AWS_{name}", value)
    return f"s3://offbeat/{tmp_path.name.replace('_', '-')}"


@pytest.mark.parametrize("kind", ["small updates, a folder", "large updates, objects"])
def test_a_run_moves_to_a_shared_store_and_back_and_continues(
    tmp_path: Path, store: StoreSettings, kind: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if "objects" in kind:
        monkeypatch.setattr(front, "SMALL", 0)
        store = store.model_copy(update={"blobs": request.getfixturevalue("bucket")})
    running_one, one, back = tmp_path / "running", tmp_path / "one", tmp_path / "back"
    with running(running_one, plain, checkpoint_seconds=1e6) as server:
        peer, other = server.enrol(), server.enrol()
        work(peer, 3)
        begun = other.check_in()
        assert begun is not None
        work(peer, 2)
        back_up(running_one, one)  # as if it had been killed: the updates lie behind the checkpoint
        version, model = facts(server)
    before = rows_of(one)
    moved = move_to_store(one, store)
    assert rows_of(store)[:moved] == rows_of(one)[:moved]
    assert rows_of(one)[: len(before)] == before
    assert [row[2] for row in rows_of(store)[moved:]] == ["place", "checkpoint"]
    with (
        pytest.raises(OffbeatError, match=r"^the run was moved to postgresql://\S+ and \S+: start it there"),
        running(one, plain),
    ):
        pass
    assert status(one)["server"].startswith("moved to postgresql://")
    assert move_to_store(one, store) == moved  # again, and nothing changes
    with running(tmp_path / "two", plain, store=store) as server:
        assert facts(server) == (version, model)
        assert server.peer(other.token).send(begun, torch.zeros(LENGTH))["counted"]  # a visit from before the move
        work(server.peer(peer.token), 3)
        version, model = facts(server)
        with pytest.raises(OffbeatError, match=r"leads: stop all servers of this run first$"):
            move_to_folder(tmp_path / "two", store, back)
    before = rows_of(store)
    moved = move_to_folder(tmp_path / "two", store, back)
    assert rows_of(back) == rows_of(store)[:moved]
    assert rows_of(store)[: len(before)] == before
    with (
        pytest.raises(OffbeatError, match=f"^the run was moved to {back}: start it there"),
        running(tmp_path / "three", plain, store=store),
    ):
        pass
    assert move_to_folder(tmp_path / "two", store, back) == moved
    with running(back, plain) as server:
        assert facts(server) == (version, model)
        work(server.peer(peer.token), 3)
        assert server.admin.http.get("/v1/status").json()["counted"] == 12


_KILLED = """
import os, signal, sys
from pathlib import Path
from offbeat.service.server import move
from offbeat.service.store_settings import StoreSettings
from offbeat.service.store.backup import back_up

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

point, way, folder, log, blobs, target = sys.argv[1:]
setattr(move, point, die) if hasattr(move, point) else setattr(move.Path, point, die)
settings = StoreSettings(log=log, blobs=blobs)
if way == "there":
    move.move_to_store(Path(folder), settings)
else:
    move.move_to_folder(Path(folder), settings, Path(target))
"""


def killed(point: str, way: str, folder: Path, store: StoreSettings, target: Path) -> None:
    words = [sys.executable, "-c", _KILLED, point, way, str(folder), store.log, store.blobs, str(target)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.skipif(os.name == "nt", reason="sends signals")
def test_a_move_that_is_killed_leaves_one_whole_run_and_can_be_repeated(tmp_path: Path, store: StoreSettings) -> None:
    one, back = tmp_path / "one", tmp_path / "back"
    with running(one, plain) as server:
        peer = server.enrol()
        work(peer, 3)
        model = facts(server)
    killed("_leave", "there", one, store, back)  # all is copied
    with (
        pytest.raises(OffbeatError, match=r"^a run is being moved to postgresql://"),
        running(tmp_path / "two", plain, store=store),
    ):
        pass
    with running(one, plain) as server:  # whole, so it may also go on
        assert facts(server) == model
        work(server.peer(peer.token), 1)
        model = facts(server)
    killed("publish_run", "there", one, store, back)  # the source says where it has gone
    for folder, settings in ((one, None), (tmp_path / "two", store)):
        with (
            pytest.raises(OffbeatError, match=r"run the same offbeat server move again$"),
            running(folder, plain, store=settings),
        ):
            pass
    with pytest.raises(OffbeatError, match=r"^the run was moved to postgresql://.*/blobs: start it there"):
        move_to_store(one, store.model_copy(update={"blobs": f"file://{tmp_path}/other"}))
    move_to_store(one, store)
    with running(tmp_path / "two", plain, store=store) as server:
        assert facts(server) == model
    killed("_leave", "back", tmp_path / "two", store, back)
    assert not back.exists()
    with running(tmp_path / "two", plain, store=store) as server:
        assert facts(server) == model
    killed("rename", "back", tmp_path / "two", store, back)
    assert not back.exists()
    with pytest.raises(OffbeatError, match="was moved to"), running(tmp_path / "two", plain, store=store):
        pass
    move_to_folder(tmp_path / "two", store, back)
    with running(back, plain) as server:
        assert facts(server) == model


def test_what_cannot_move_is_refused_in_one_line(tmp_path: Path, store: StoreSettings, offbeat: Command) -> None:
    one = tmp_path / "one"
    with running(one, plain), pytest.raises(OffbeatError, match=r"is in use by a server: stop it first$"):
        move_to_store(one, store)
    earlier = tmp_path / "earlier"
    earlier.mkdir()
    with closing(sqlite3.connect(earlier / "offbeat.sqlite")) as database:
        database.executescript(ANOTHER_FORM)
    with pytest.raises(OffbeatError, match="holds a run of another version of Offbeat"):
        move_to_store(earlier, store)
    with running(tmp_path / "two", plain, store=store):
        pass
    with pytest.raises(OffbeatError, match=r"holds a run already: take an empty one$"):
        move_to_store(one, store)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(OffbeatError, match=r"full is not empty: take another folder$"):
        move_to_folder(tmp_path / "two", store, tmp_path / "full")
    with running(one, plain):
        pass  # it was not changed by any of these
    for words, line in (
        ([one], "is in its folder: give --log and --blobs"),
        ([tmp_path / "two", "--log", store.log], "give --folder"),
        ([one, "--log", "mysql://x", "--blobs", "s3://x"], "store: log must begin with postgresql://"),
    ):
        code, _, error = offbeat("server", "move", *map(str, words))
        assert (code, error.count("\n")) == (2, 1), error
        assert line in error
