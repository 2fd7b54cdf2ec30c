"""Runs that fail or cannot be opened, and tokens that only an open run knows."""

import asyncio
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from offbeat_core.tokens import new_token

from offbeat.service.hosting import runs
from offbeat.service.hosting.hosted_run import HostedRun
from offbeat.service.refusal import Refusal
from tests.offbeat_command import offbeat_output
from tests.service.conftest import LENGTH, Peer
from tests.service.hosting.conftest import Host, Site, hosting
from tests.service.http_client import kind_of, until


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the server look at its runs all the time, and soon open again what has failed."""
    monkeypatch.setattr(runs, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(runs, "_RETRY_SECONDS", 0.3)


def join(server: Host, run: str) -> Peer:
    """Enrol a client with a run itself."""
    made = server.peer(server.admin.token, run).http.post("/v1/tokens", json={"kind": "enrolment"}).json()["token"]
    return server.peer(server.peer(made, run).http.post("/v1/enrol", json={}).json()["token"], run)


def break_database(folder: Path) -> None:
    for name in ("offbeat.sqlite-wal", "offbeat.sqlite-shm"):
        (folder / name).unlink(missing_ok=True)
    (folder / "offbeat.sqlite").write_bytes(b"SQLite format 3\x00" + bytes(range(256)) * 40)


def break_row(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "offbeat.sqlite")) as database, database:
        database.execute("UPDATE log SET arguments = '{\"client\": 99}' WHERE owner = 'accounts'")
    shutil.rmtree(folder / "checkpoints")


def break_checkpoint(folder: Path) -> None:
    for path in (folder / "checkpoints").iterdir():
        path.write_bytes(path.read_bytes()[:-5])


def replace_by_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("a file")


@pytest.mark.parametrize("damage", [break_database, break_row, break_checkpoint, replace_by_file])
def test_a_run_whose_folder_is_broken_leaves_the_others_alone(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    with hosting(tmp_path / "server") as server:
        for name in ("bad", "good"):
            server.create(name, algorithm="fedasync")
        site = server.enrol("")
        assert {site.work() for _ in range(2)} == {"good", "bad"}
    damage(tmp_path / "server" / "runs" / "bad")
    with hosting(tmp_path / "server") as server:
        now = server.runs()
        assert (now["good"]["state"], now["bad"]["state"]) == ("at work", "failed")
        problem = now["bad"]["problem"]
        assert problem
        assert "\n" not in problem
        assert f"problem: bad has failed ({problem}), and is" in offbeat_output("server", "runs", tmp_path / "server")
        assert {site.at_server(server).work() for _ in range(2)} == {"good"}
        assert kind_of(server.peer(server.admin.token, "bad").http.get("/v1/status"), 503) == "stopping"


def test_a_run_that_could_not_be_opened_is_opened_once_it_can(tmp_path: Path, soon: None) -> None:
    with hosting(tmp_path / "server") as server:
        server.create("one", algorithm="fedasync")
        site = server.enrol("")
        assert site.work() == "one"
    folder = tmp_path / "server" / "runs" / "one"
    saved = (folder / "offbeat.sqlite").read_bytes()
    break_database(folder)
    with hosting(tmp_path / "server") as server:
        assert server.runs()["one"]["state"] == "failed"
        (folder / "offbeat.sqlite").write_bytes(saved)
        # A site that waits hears of it.
        assert site.at_server(server).find_work(30.0)["run"] == "one"
        assert server.runs()["one"]["counted"] == 1


def test_a_run_that_fails_comes_back(server: Host, soon: None) -> None:
    server.create("one", algorithm="fedasync")
    site, own = server.enrol(""), join(server, "one")
    assert site.work() == "one"
    before = server.run("one")
    server.in_loop(lambda: before._end.set(ValueError("planted")))
    until(lambda: server.runs()["one"]["state"] == "failed")
    # A client of its own must not take its token for one that has ended; a site of other runs learns nothing.
    assert kind_of(own.http.post("/v1/checkin", json={}), 503) == "stopping"
    assert kind_of(server.enrol("").at("one").http.post("/v1/checkin", json={}), 404) == "no-such-run"
    until(lambda: server.runs()["one"]["state"] == "at work")
    assert server.run("one") is not before
    assert site.work() == "one"
    assert own.check_in() is not None
    assert server.runs()["one"]["counted"] == 2


def test_a_client_of_a_run_itself_hears_that_the_run_is_over_also_after_a_restart(tmp_path: Path, soon: None) -> None:
    with hosting(tmp_path / "server") as server:
        server.create("own", algorithm="fedasync", versions=1)
        server.create("sites", algorithm="fedasync", versions=1, names=["site"])
        client, site = join(server, "own"), server.enrol("site")
        for peer in (client, site.at("sites")):
            if peer is not client:
                assert site.find_work()["run"] is not None
            assert peer.send(peer.check_in(), torch.ones(LENGTH))["counted"]
        until(lambda: server.service.home.state.runs["sites"].is_over)
    with hosting(tmp_path / "server") as server:
        assert server.peer(client.token, "own").http.post("/v1/checkin", json={}).json()["finished"] is True
        assert server.runs()["own"]["state"] == "over"
        assert not server.service.runs.is_open("sites")
        # A site that has no part in a run does not open it.
        other = server.enrol("").at("sites")
        assert kind_of(other.http.post("/v1/checkin", json={}), 404) == "no-such-run"
        assert not server.service.runs.is_open("sites")
        again = site.at_server(server).at("sites")
        assert again.http.post("/v1/checkin", json={}).json()["finished"] is True


def test_a_run_is_opened_again_once_it_is_closed(server: Host, soon: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_IDLE_SECONDS", 0.2)
    close = HostedRun.close

    async def slowly(run: HostedRun) -> None:
        await asyncio.sleep(0.5)
        await close(run)

    monkeypatch.setattr(HostedRun, "close", slowly)
    server.create("one", algorithm="fedasync", versions=1)
    assert server.enrol("").work() == "one"
    until(lambda: not server.service.runs.is_open("one"))
    answer = server.peer(server.admin.token, "one").http.get("/v1/status")
    assert answer.json()["version"] == 1


def test_a_token_that_has_ended_gives_nobody_its_labels(server: Host) -> None:
    server.create("trusted", algorithm="fedasync", labels=["trusted"])
    labelled = server.token("enrolment", labels=["trusted"], uses=1)
    own = new_token("obc_")
    stranger = {"name": "stranger", "token": own}
    assert server.peer(server.token("enrolment")).http.post("/v1/enrol", json=stranger).status_code == 201
    trusted = {"name": "trusted", "token": new_token("obc_")}
    for _ in range(2):  # its answer was lost
        answer = server.peer(labelled).http.post("/v1/enrol", json=trusted)
        assert answer.status_code == 201
    assert Site(server, answer.json()).find_work()["run"] == "trusted"
    answer = server.peer(labelled).http.post("/v1/enrol", json=stranger)  # which is used up
    assert Site(server, answer.json()).find_work()["run"] is None
    assert [site["labels"] for site in server.admin.http.get("/v1/sites").json()["sites"]] == [[], ["trusted"]]


def test_a_site_is_revoked_in_all_runs_that_can_be_written(server: Host, monkeypatch) -> None:
    for name in ("full", "good"):
        server.create(name, algorithm="one at a time")
    site, other = server.enrol(""), server.enrol("")
    assert {site.find_work(without=(name,))["run"] for name in ("full", "good")} == {"full", "good"}
    service = server.run("full").service.service

    async def refuse(client: int) -> None:
        raise Refusal("busy", f"no space for client {client}")

    monkeypatch.setattr(service, "revoke", refuse)
    assert kind_of(server.admin.http.delete(f"/v1/sites/{site.number}"), 503) == "busy"
    assert {name: run["at_work"] for name, run in server.runs().items()} == {"full": 1, "good": 0}
    assert other.find_work()["run"] == "good"
    monkeypatch.undo()
    assert server.admin.http.delete(f"/v1/sites/{site.number}").status_code == 204
    assert server.runs()["full"]["at_work"] == 0


def test_a_server_whose_disk_was_full_takes_in_sites_again(server: Host, soon: None) -> None:
    server.in_loop(lambda: server.service.home.disk.mark_full("no space"))
    assert server.peer(server.token_in_folder("enrolment")).http.post("/v1/enrol", json={}).status_code == 503
    until(lambda: server.peer(server.token_in_folder("enrolment")).http.post("/v1/enrol", json={}).status_code == 201)


def test_whatever_keeps_a_run_from_its_start_the_server_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hosting(tmp_path / "server") as server:
        for name in ("bad", "good"):
            server.create(name, algorithm="fedasync")
    serve = HostedRun._serve

    async def fail(run: HostedRun, *arguments: Any) -> None:
        if run.name == "bad":
            raise LookupError("planted")
        await serve(run, *arguments)

    monkeypatch.setattr(HostedRun, "_serve", fail)
    with hosting(tmp_path / "server") as server:
        now = server.runs()
        assert {name: (run["state"], run["problem"]) for name, run in now.items()} == {
            "bad": ("failed", "LookupError: planted"),
            "good": ("at work", "The run waits for a client to enrol: start clients with an enrolment token"),
        }
