"""The best evaluated version is kept beside the newest, wherever the run goes."""

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from offbeat_core.errors import OffbeatError
from safetensors.torch import load_file

from offbeat.algorithms import FedBuff
from offbeat.early_stop import BestMetric
from offbeat.service.engine import standby
from offbeat.service.server.admin import export_model, status
from offbeat.service.server.move import move_to_folder, move_to_store
from offbeat.service.store.backup import back_up
from offbeat.service.store.database import numbers_of
from offbeat.service.store.shared_backup import back_up_shared
from offbeat.service.store.shared_files import SharedFiles
from offbeat.service.store_settings import StoreSettings
from tests.postgres import postgres as postgres
from tests.postgres import store as store
from tests.service.client_evaluation.peers import answer, asked, clients_of, serving
from tests.service.client_evaluation.peers import work as make_version
from tests.service.conftest import Peer, Served, running
from tests.service.http_client import ONES, until

ACCURACY = BestMetric("accuracy", lower_is_better=False)
# It answers with the accuracy of the version in a path, in units of a tenth, once there is a file.
ANSWER = """
import json, pathlib, sys, time
for line in sys.stdin:
    while not pathlib.Path(sys.argv[2]).exists():
        time.sleep(0.02)
    version = pathlib.Path(line.strip()).name.split(".")[1]
    print(json.dumps({"accuracy": json.loads(sys.argv[1]).get(version, 0) / 10, "loss": 1.0}), flush=True)
"""


def make() -> FedBuff:
    return FedBuff(buffer_size=1, concurrency=1)


def settings(tenths: Mapping[int, int], go: Path = Path(), **more: Any) -> dict[str, Any]:
    command = [sys.executable, "-c", ANSWER, json.dumps(tenths), str(go)]
    defaults = {"evaluate_every": 1, "evaluate_command": command, "best_metric": ACCURACY, "checkpoint_seconds": 1e6}
    return {**defaults, **more}


FIRST = settings({1: 3, 2: 9, 3: 5, 4: 9})


def work(server: Served, peer: Peer, versions: int) -> None:
    """Make versions, each of which is evaluated before the next."""
    for _ in range(versions):
        visit = peer.check_in()
        assert visit is not None
        assert peer.send(visit, ONES)["counted"]
        version = server.service.status().version
        until(lambda version=version: (server.service.status().evaluated or {}).get("version") == version, 60)


def work_ahead(server: Served, peer: Peer, go: Path, versions: int) -> None:
    """Make versions, then a checkpoint that needs only the newest, and only then let them be evaluated."""
    for _ in range(versions):
        visit = peer.check_in()
        assert visit is not None
        assert peer.send(visit, ONES)["counted"]
    server.checkpoint()
    server.checkpoint()
    go.touch()


def best_of(where: Served | Path) -> tuple[int, float] | None:
    # A server answers once the row is durable.
    now = where.admin.http.get("/v1/status").json() if isinstance(where, Served) else status(where)
    found = now["best"]
    return found and (found["version"], found["value"])


def is_kept(server: Served, version: int) -> bool:
    """Return whether two checkpoints leave a version's file."""
    server.checkpoint()
    server.checkpoint()
    return version in numbers_of(server.folder / "models")


def exported(folder: Path, output: Path, store: StoreSettings | None = None) -> tuple[int, list[float]]:
    """Return the version of ``export --best``, and its parameters."""
    version = export_model(folder, output, store, is_best=True)
    return version, torch.cat([tensor.flatten() for tensor in load_file(output).values()]).tolist()


def test_the_best_version_stays_through_restarts_kills_and_backups(tmp_path: Path) -> None:
    one, killed, copy = (tmp_path / name for name in ("one", "killed", "copy"))
    with running(one, make, **FIRST) as server:
        peer = server.enrol()
        work(server, peer, 1)
        until(lambda: best_of(server) == (1, 0.3))
        work(server, peer, 3)
        until(lambda: best_of(server) == (2, 0.9))  # of two with this value the first
        second = load_file(one / "models/2.safetensors")
        # As if it had been killed: the row of the best version lies behind the checkpoint.
        until(lambda: server.service.engine.log_writer.problem is None)
        shutil.copytree(one, killed)
        back_up(one, copy)
        assert is_kept(server, 2)
        assert not is_kept(server, 1)  # which was the best one
        assert sorted(numbers_of(one / "models")) == [2, 4]
    expected = torch.cat([tensor.flatten() for tensor in second.values()]).tolist()
    for folder in (one, killed, copy):
        assert best_of(folder) == (2, 0.9)
        assert exported(folder, tmp_path / "model.safetensors") == (2, expected)
        with running(folder, make, **settings({5: 8, 6: 10})) as server:
            assert best_of(server) == (2, 0.9)
            work(server, server.peer(peer.token), 1)
            assert is_kept(server, 2)
            work(server, server.peer(peer.token), 1)
            until(lambda server=server: best_of(server) == (6, 1.0))
            assert not is_kept(server, 2)


def test_a_version_is_kept_while_its_evaluation_takes_long(tmp_path: Path) -> None:
    go = tmp_path / "go"
    with running(tmp_path / "one", make, **settings({1: 3}, go)) as server:
        work_ahead(server, server.enrol(), go, 3)
        until(lambda: best_of(server) == (1, 0.3), 60)
        back_up(server.folder, tmp_path / "copy")
        shutil.copytree(server.folder, tmp_path / "killed")  # behind a checkpoint that does not need the version
        assert is_kept(server, 1)
    for folder in (tmp_path / "copy", tmp_path / "killed"):
        with running(folder, make, **settings({})) as server:
            assert is_kept(server, 1)


def test_clients_values_decide_where_lower_is_better(tmp_path: Path) -> None:
    metric = BestMetric("client_loss", lower_is_better=True)
    with serving(tmp_path / "one", number=1, every=1, best_metric=metric) as server:
        (peer,) = clients_of(server, 1)
        for version, loss in enumerate([2.0, 1.0, 3.0], start=1):
            make_version(peer)
            assert asked([peer]) == {0: version}
            assert answer(peer, version, loss=loss).json()["counted"]
        until(lambda: best_of(server) == (2, 1.0))
        assert is_kept(server, 2)


def test_a_full_disk_delays_the_best_version_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from offbeat.service.engine import best_keeper

    tries: list[Path] = []

    def sync(path: Path) -> None:
        tries.append(path)
        if len(tries) == 1:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(best_keeper, "sync_file", sync)
    with running(tmp_path / "one", make, **FIRST) as server:
        work(server, server.enrol(), 1)
        until(lambda: best_of(server) == (1, 0.3))
    assert len(tries) == 2


def test_without_a_best_version_the_export_says_what_to_set(tmp_path: Path) -> None:
    with running(tmp_path / "one", make):
        pass
    with pytest.raises(OffbeatError, match=r"^no best version is kept: set service.keep_best to a metric"):
        export_model(tmp_path / "one", tmp_path / "model", is_best=True)


def test_another_metric_begins_anew_and_the_best_one_so_far_stays_until_then(tmp_path: Path) -> None:
    with running(tmp_path / "one", make, **FIRST) as server:
        peer = server.enrol()
        work(server, peer, 2)
        until(lambda: best_of(server) == (2, 0.9))
    loss = BestMetric("loss", lower_is_better=True)
    with running(tmp_path / "one", make, **settings({}, best_metric=loss)) as server:
        assert best_of(server) in ((2, 0.9), (2, 1.0))
        work(server, server.peer(peer.token), 1)
        until(lambda: server.service.status().best["metric"] == "loss")
        assert is_kept(server, best_of(server)[0])


def test_the_best_version_moves_and_is_there_for_the_next_leader(
    tmp_path: Path, store: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby, "_SILENT_SECONDS", 0.5)
    one, output = tmp_path / "one", tmp_path / "model.safetensors"
    go, later = tmp_path / "go", tmp_path / "later"
    with running(one, make, **settings({2: 9}, go)) as server:
        peer = server.enrol()
        work_ahead(server, peer, go, 4)
        until(lambda: best_of(server) == (2, 0.9), 60)
        back_up(one, tmp_path / "killed")  # as if it had been killed: the row lies behind the checkpoint
    expected = exported(one, output)
    move_to_store(tmp_path / "killed", store)
    with running(tmp_path / "two", make, store=store, **settings({5: 8, 6: 10}, later)) as server:
        assert best_of(server) == (2, 0.9)
        assert exported(tmp_path / "two", output, store) == expected
        work_ahead(server, server.peer(peer.token), later, 4)
        until(lambda: best_of(server) == (6, 1.0), 60)
        sixth = exported(tmp_path / "two", output, store)
        # As another server finds it once this one is dead: the row lies behind the checkpoint.
        back_up_shared(tmp_path / "two", store, tmp_path / "copy")
        monkeypatch.setattr(SharedFiles, "upload_checkpoint", _unreachable)  # at the end, too
    monkeypatch.undo()
    monkeypatch.setattr(standby, "_SILENT_SECONDS", 0.5)
    assert sixth[0] == 6
    assert exported(tmp_path / "copy", output) == sixth
    with running(tmp_path / "three", make, store=store, **settings({})) as server:
        assert best_of(server) == (6, 1.0)
        assert is_kept(server, 6)
        work(server, server.peer(peer.token), 2)
        assert is_kept(server, 6)
    move_to_folder(tmp_path / "three", store, tmp_path / "back")
    assert exported(tmp_path / "back", output) == sixth
    with running(tmp_path / "back", make, **settings({})) as server:
        assert best_of(server) == (6, 1.0)
        work(server, server.peer(peer.token), 1)
        assert is_kept(server, 6)


async def _unreachable(*_: Any) -> None:
    from offbeat.service.store.disk import UnreachableFilesError

    raise UnreachableFilesError("s3://bucket: gone")
