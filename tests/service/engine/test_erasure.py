"""Deletion of what a server holds of a client."""

import asyncio
import json
import shutil
from contextlib import closing

import pytest
import torch

from offbeat.algorithms import FedBuff
from offbeat.coordinator import Coordinator
from offbeat.service.audit.verification import entries, verify
from offbeat.service.engine import erasure
from offbeat.service.engine.erasure import Erasure
from offbeat.service.engine.replay import Replay
from offbeat.service.log.term import Term
from offbeat.service.server import stopped_server
from offbeat.service.store.store import Store
from tests.postgres import postgres as postgres
from tests.postgres import store as store
from tests.service.conftest import LAYOUT, LENGTH, PLAN, body_of, running

ONES = torch.ones(LENGTH)
NAME, OTHER = "St. Würzburg-7781", "Clinic Before 5512"
STEPS = (  # of a deletion, with the object that has each
    ("engine", "forget"),
    ("checkpoints", "write_and_forget"),
    ("log", "redact"),
    ("uploads", "forget"),
    ("log_writer", "tidy"),
    ("accounts", "note_forgotten"),
)


def fedbuff(size=3):
    return FedBuff(buffer_size=size, concurrency=4, server_lr=1.0)


def everything(folder):
    """Return the bytes of all files of a server's folder."""
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def spelled(name):
    """Return how a file may spell a name."""
    return [name.encode(), json.dumps(name)[1:-1].encode()]


def forget(server, number):
    answer = server.admin.http.delete(f"/v1/clients/{number}/data")
    assert answer.status_code == 200, answer.text
    return answer.json()


def populated(server):
    """Enrol three clients; the second has another name and a counted update, and a large upload has begun."""
    peers = [server.enrol(name="one"), server.enrol(name=OTHER, examples=4477), server.enrol(name="three")]
    server.admin.http.post("/v1/admin/clients/1/rename", json={"name": NAME})
    visits = [peer.check_in() for peer in peers]
    for peer, visit, value in zip(peers[:2], visits[:2], (1.0, 7.0), strict=True):
        assert peer.send(visit, value * ONES, examples=4477 if value == 7 else 10)["counted"]
    return peers, visits


def test_nothing_is_left_of_a_client_and_the_next_version_is_made_without_it(tmp_path):
    folder = tmp_path / "server"
    with running(folder, fedbuff) as server:
        peers, visits = populated(server)
        assert any(text in everything(folder) for text in spelled(NAME))
        assert body_of(7.0 * ONES) in everything(folder)
        answer = forget(server, 1)
        assert (answer["client"], answer["updates"]) == (1, 1)
        held = everything(folder)
        for name in (NAME, OTHER):
            assert not any(text in held for text in spelled(name))
        assert body_of(7.0 * ONES) not in held
        assert b"4477" not in held
        problem = peers[1].http.post("/v1/checkin", json={})
        assert (problem.status_code, problem.json()["kind"]) == (401, "unknown-token")
        page = server.admin.http.get("/v1/admin/clients").json()
        assert [one["name"] for one in page["clients"]] == ["one", "three"]
        assert page["total"] == 2
        again = peers[0].check_in()
        peers[0].send(again, 2.0 * ONES)
        peers[2].send(visits[2], 3.0 * ONES)
        assert torch.equal(server.service.engine.coordinator.algorithm.model, -2.0 * ONES)
    assert verify(folder)
    assert [one["name"] for one in stopped_server.clients(folder)] == ["one", "three"]
    entry = next(entry for entry in entries(folder) if entry["kind"] == "client forgotten")
    assert set(entry) == {"number", "at", "kind", "client", "by"}
    with running(folder, fedbuff) as server:
        assert torch.equal(server.service.engine.coordinator.algorithm.model, -2.0 * ONES)
        assert server.service.engine.tally[1].counted == 1


def test_an_upload_under_way_is_deleted(tmp_path):
    folder = tmp_path / "server"
    large = torch.ones(100_000)
    with running(folder, fedbuff, model=torch.zeros(100_000), layout=[("weight", (100_000,))]) as server:
        one, two = server.enrol(name="one"), server.enrol(name="two")
        body = body_of(large)
        for peer in (one, two):
            visit = peer.check_in()
            headers = {"Upload-Offset": "0", "Offbeat-Update": json.dumps(peer.head(visit, body))}
            assert peer.http.put(f"/v1/uploads/{visit['number']}", content=body[:70_000], headers=headers).json()
        (folder / "fronts" / "0" / "partial").mkdir(parents=True)
        (folder / "fronts" / "0" / "partial" / "1-0").write_bytes(b"x")
        assert {path.name for path in (folder / "partial").iterdir()} == {"0-0", "1-0"}
        answer = forget(server, 1)
        assert "2 incomplete uploads of it are deleted." in answer["deleted"]
        assert {path.name for path in (folder / "partial").iterdir()} == {"0-0"}
        assert not list((folder / "fronts").rglob("1-*"))


def test_what_stays_is_said(tmp_path):
    with running(tmp_path / "server", lambda: fedbuff(2)) as server:
        peers, _ = populated(server)
        assert server.service.status().version == 1
        answer = forget(server, 1)
        assert answer["updates"] == 0
        assert answer["stays"][0].startswith("Versions of the model were made from its updates, of which 1 counted")
        assert any("Backups" in sentence for sentence in answer["stays"])
        assert not any("sum for the next" in sentence for sentence in answer["stays"])
        visit = peers[0].check_in()
        peers[0].send(visit, ONES)
        server.checkpoint()
        answer = forget(server, 0)
        assert answer["updates"] == 0
        assert any("is in fedbuff's sum for the next one" in sentence for sentence in answer["stays"])
        assert forget(server, 0)["deleted"] == []  # a second time there is nothing left


def test_only_an_admin_may_and_only_a_client_that_exists(shared_server):
    shared_server.enrol(name="x")
    made = shared_server.admin.http.post("/v1/tokens", json={"kind": "operator"}).json()["token"]
    answer = shared_server.peer(made).http.delete("/v1/clients/0/data")
    assert (answer.status_code, answer.json()["kind"]) == (403, "foreign-token")
    answer = shared_server.admin.http.delete("/v1/clients/9999/data")
    assert (answer.status_code, answer.json()["kind"]) == (404, "no-such-client")


@pytest.mark.parametrize(
    ("step", "is_done"),
    [(step, is_done) for step in STEPS for is_done in (False, True)][1:],  # before the first one nothing has begun
    ids=lambda value: value[1] if isinstance(value, tuple) else ("before", "after")[value],
)
def test_a_deletion_that_a_kill_has_ended_is_done_at_the_next_start(tmp_path, monkeypatch, step, is_done):
    """The folder is copied before or after each step, as a kill would leave it."""
    folder, copy = tmp_path / "server", tmp_path / "killed"
    with running(folder, fedbuff) as server:
        peers, visits = populated(server)
        service = server.service
        owners = {
            "engine": service.engine,
            "checkpoints": server.checkpoints,
            "log_writer": service.engine.log_writer,
            "log": service.engine.log_writer.log,
            "uploads": server.front.uploads,
            "accounts": service.accounts,
        }
        place, name = step
        method = getattr(owners[place], name)

        async def stopped(*arguments):
            if not is_done:
                await service.engine.log_writer.wait_until_durable()
                shutil.copytree(folder, copy)
            result = await method(*arguments)
            if is_done:
                await service.engine.log_writer.wait_until_durable()
                shutil.copytree(folder, copy)
            return result

        def noted(*arguments):
            if not is_done:
                shutil.copytree(folder, copy)
            method(*arguments)

        monkeypatch.setattr(owners[place], name, noted if name == "note_forgotten" else stopped)
        forget(server, 1)
        if not copy.exists():
            shutil.copytree(folder, copy)
    monkeypatch.setattr(erasure, "_RETRY_SECONDS", 0.01)
    with running(copy, fedbuff) as server:
        site = server.service.accounts.sites[1]
        for _ in range(1000):
            if site.forgotten == "done":
                break
            server.checkpoint()
        assert site.forgotten == "done"
        assert server.service.engine.coordinator.algorithm.buffer.count == 1
        held = everything(copy)
        for name in (NAME, OTHER):
            assert not any(text in held for text in spelled(name))
        assert body_of(7.0 * ONES) not in held
        peers = [server.peer(peer.token) for peer in peers]
        peers[0].send(peers[0].check_in(), 2.0 * ONES)
        peers[2].send(visits[2], 3.0 * ONES)
        assert torch.equal(server.service.engine.coordinator.algorithm.model, -2.0 * ONES)
    assert verify(copy)


def test_a_deletion_that_a_full_disk_has_stopped_goes_on_by_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(erasure, "_RETRY_SECONDS", 0.05)
    with running(tmp_path / "server", fedbuff) as server:
        populated(server)
        write, failures = server.checkpoints.write_and_forget, [OSError(28, "No space left on device")]

        async def full():
            if failures:
                raise failures.pop()
            await write()

        monkeypatch.setattr(server.checkpoints, "write_and_forget", full)
        answer = server.admin.http.delete("/v1/clients/1/data")
        assert (answer.status_code, answer.json()["kind"]) == (503, "no-space")
        site = server.service.accounts.sites[1]
        for _ in range(1000):
            if site.forgotten == "done":
                break
            server.checkpoint()
        assert site.forgotten == "done"


def test_no_server_of_a_shared_log_holds_the_client_after_it(tmp_path, store):
    with running(tmp_path / "one", fedbuff, store=store) as server:
        populated(server)
        server.checkpoint()
        assert isinstance(server.service.erasure, Erasure)
        answer = forget(server, 1)
        assert answer["updates"] == 0  # the checkpoint has added it to the sum
        assert any("VACUUM" in sentence for sentence in answer["stays"])
        blobs = tmp_path / "blobs"
        held = everything(blobs) if blobs.exists() else b""
        held += everything(tmp_path / "one")
        assert not any(text in held for name in (NAME, OTHER) for text in spelled(name))


class Standby:
    """A server's state that follows a shared log, as on a server that stands by."""

    def __init__(self, folder, shared):
        self._store = Store(folder, shared=shared)
        coordinator = Coordinator(fedbuff(4), torch.zeros(LENGTH), clients=5, local=PLAN, seed=7)
        self.replay = Replay(self._store, coordinator, LAYOUT)
        self._term = Term(self._store.log, "standby", self.replay.number, self.replay.epoch)

    def follow(self):
        async def apply_rows():
            async for row in self._term.follow():
                self.replay.apply(row)

        asyncio.run(apply_rows())

    def close(self):
        self._store.close()


def test_a_server_that_stands_by_comes_to_the_same_model_and_keeps_nothing_of_the_client(tmp_path, store):
    name = "Ward Nine 9914"
    with running(tmp_path / "one", lambda: fedbuff(4), store=store) as server:
        gone, *others = server.enrol(name=name), server.enrol(), server.enrol(), server.enrol()
        gone.send(gone.check_in(), 9.0 * ONES)
        server.checkpoint()
        with closing(Standby(tmp_path / "two", store)) as standby:
            assert name.encode() in everything(tmp_path / "two")
            others[0].send(others[0].check_in(), 2.0 * ONES)
            gone.send(gone.check_in(), 11.0 * ONES)
            standby.follow()
            assert forget(server, 0)["updates"] == 1  # the checkpoint has added the other one to the sum
            standby.follow()
            assert name.encode() not in everything(tmp_path / "two")
            for peer in others:
                peer.send(peer.check_in(), 3.0 * ONES)
            server.checkpoint()
            standby.follow()
            one, two = server.service.engine.coordinator.algorithm, standby.replay.coordinator.algorithm
            assert (one.version, one.buffer.count) == (two.version, two.buffer.count)
            assert torch.equal(one.model, two.model)
            assert torch.equal(one.model, -(9 + 2 + 3 + 3) / 4 * ONES)
