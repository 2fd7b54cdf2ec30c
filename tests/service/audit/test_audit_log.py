"""The audit log of a running server."""

import json
import shutil
import sqlite3
from collections import Counter
from contextlib import closing

import pytest
import torch
from offbeat_core.errors import OffbeatError
from offbeat_core.tokens import token_hash

from offbeat.service.audit.verification import LogHead, entries, verify
from offbeat.service.log.log import LogUnavailableError
from offbeat.service.refusal import KINDS
from offbeat.service.store.backup import back_up
from tests.service.conftest import LENGTH, body_of, running
from tests.service.http_client import until

ONES = torch.ones(LENGTH)


def kinds(folder):
    return [entry["kind"] for entry in entries(folder)]


def token_id(token):
    return token_hash(token)[:12]


def receipt_head(peer):
    """Upload an update; return the head in the answer."""
    return LogHead.parse(peer.put(peer.check_in(), body_of(ONES)).json()["audit_head"])


def test_settings_may_be_infinite(tmp_path):
    folder = tmp_path / "server"
    with running(folder, config={"server": {"sizes": [1.0, float("inf")]}}, max_update_norm=float("inf")):
        start = next(entries(folder))
    assert start["config"] == {"server": {"sizes": [1.0, "inf"]}}
    assert start["settings"]["max_update_norm"] == "inf"


def test_each_action_is_an_entry_before_it_is_answered(tmp_path):
    folder = tmp_path / "server"
    with running(folder, config={"algorithm": "x"}) as server:
        first = [(entry["kind"], entry.get("of")) for entry in entries(folder)]
        assert first == [("server started", None), ("token made", "admin"), ("token made", "enrolment")]
        start = next(entries(folder))
        assert start["config"] == {"algorithm": "x"}
        assert (start["settings"]["port"], start["settings"]["tls"]) == (0, False)
        admin = token_id(server.admin.token)

        def newest():
            assert verify(folder)
            entry = list(entries(folder))[-1]
            return {key: value for key, value in entry.items() if key not in ("number", "at")}

        server.enrol(name="ward 3")
        enrolled = {"kind": "client enrolled", "client": 0}
        assert newest() == enrolled | {"token": token_id(server.enrolment_token)}
        made = server.admin.http.post("/v1/tokens", json={"kind": "enrolment", "uses": 3, "name": "w"}).json()["token"]
        limits = {"of": "enrolment", "name": "w", "uses": 3, "expires_seconds": None}
        assert newest() == {"kind": "token made", "token": token_id(made), "by": admin, **limits}
        server.admin.http.delete(f"/v1/tokens/{token_id(made)}")
        assert newest() == {"kind": "token revoked", "token": token_id(made), "by": admin}
        server.admin.http.delete("/v1/clients/0")
        assert newest() == {"kind": "client revoked", "client": 0, "by": admin}
        # Over the admin's connection, but not by an admin.
        headers = {"Authorization": f"Bearer {server.enrolment_token}"}
        assert server.admin.http.post("/v1/enrol", json={}, headers=headers).status_code == 201
        assert "by" not in newest()
        database = (folder / "offbeat.sqlite").read_bytes() + (folder / "offbeat.sqlite-wal").read_bytes()
        for token in (made, server.admin.token, server.enrolment_token):
            assert token.encode() not in database
    assert kinds(folder)[-1] == "server stopped"


def test_receipts_carry_the_head_of_entries_on_disk(server):
    peers = [server.enrol() for _ in range(3)]
    head = receipt_head(peers[0])
    assert head == verify(server.folder, [head])
    server.admin.http.delete("/v1/clients/2")
    visit = peers[1].check_in()
    later = receipt_head(peers[1])
    assert later == verify(server.folder, [head, later])
    assert later.number == head.number + 1
    assert peers[1].http.get(f"/v1/uploads/{visit['number']}").json()["audit_head"] == str(later)


def test_a_head_is_given_out_only_once_its_entry_is_on_disk(tmp_path):
    with running(tmp_path / "server") as server:
        audit, log = server.service.accounts.audit, server.service.engine.log_writer._term.log
        before = audit.head
        problem, insert = [True], log._append

        def append(rows, after):
            if problem:
                raise LogUnavailableError("no space")
            insert(rows, after)

        log._append = append
        server.loop.call_soon_threadsafe(lambda: audit.add("client revoked", client=1))
        assert server.peer(server.enrolment_token).http.post("/v1/enrol", json={}).status_code == 503
        assert audit.head == before == verify(tmp_path / "server")
        problem.clear()
        until(lambda: audit.head != before)
        assert audit.head == verify(tmp_path / "server")
    assert "client revoked" in kinds(tmp_path / "server")


def test_a_restart_continues_the_chain(tmp_path):
    folder, heads = tmp_path / "server", []
    for _ in range(3):
        with running(folder) as server:
            heads.append(receipt_head(server.enrol()))
    assert verify(folder, heads).number == len(kinds(folder))
    assert kinds(folder).count("server started") == 3
    assert [entry["number"] for entry in entries(folder)] == list(range(1, len(kinds(folder)) + 1))


def test_a_backup_holds_the_log_and_a_restored_server_continues_it(tmp_path):
    with running(tmp_path / "one") as server:
        peers = [server.enrol() for _ in range(2)]
        head = receipt_head(peers[0])
        back_up(tmp_path / "one", tmp_path / "copy")
        assert verify(tmp_path / "copy", [head]) == head
        server.admin.http.delete("/v1/clients/0")
        later = receipt_head(peers[1])
    with running(tmp_path / "copy"):
        pass
    verify(tmp_path / "copy", [head])
    with pytest.raises(OffbeatError, match="written anew"):  # a revocation is missing in the copy
        verify(tmp_path / "copy", [later])


def test_a_flood_of_refusals_makes_one_entry(tmp_path):
    folder = tmp_path / "server"
    with running(folder) as server:
        before = kinds(folder)
        client = server.enrol()
        nobody = server.peer(None).http
        for number in range(30):
            assert nobody.get("/v1/status").status_code == 401
            assert nobody.get(f"/{number}").status_code == 404
            assert client.http.post("/v1/token").status_code == 200
        assert kinds(folder) == [*before, "client enrolled"]
    last = list(entries(folder))[-3:]
    counts = [{key: value for key, value in entry.items() if key not in ("number", "at")} for entry in last]
    assert counts == [
        {"kind": "refusals", "no-token": 30, "not-found": 30},
        {"kind": "client tokens", "renewed": 30},
        {"kind": "server stopped"},
    ]


def test_counts_are_entered_regularly_and_have_bounded_size(server, monkeypatch):
    audit = server.service.accounts.audit

    def flood():
        for _ in range(1000):
            for kind in KINDS:
                audit.count("refusals", kind)
        audit.flush()
        audit.flush()  # nothing new

    before = len(kinds(server.folder))
    server.loop.call_soon_threadsafe(flood)
    server.enrol()
    rows = list(entries(server.folder))[before:]
    assert Counter(row["kind"] for row in rows) == {"refusals": 1, "client enrolled": 1}
    assert len(json.dumps(rows[0])) < 2000


def test_changes_and_their_entries_are_written_together(tmp_path):
    """In a copy of the files at any moment, each enrolled client has its entry, and the other way round."""
    with running(tmp_path / "server", clients=10) as server:
        for number in range(10):
            server.enrol()
            copy = tmp_path / str(number)
            copy.mkdir()
            for name in ("offbeat.sqlite", "offbeat.sqlite-wal"):
                shutil.copyfile(server.folder / name, copy / name)
            with closing(sqlite3.connect(copy / "offbeat.sqlite")) as database:
                (clients,) = database.execute("SELECT count(*) FROM log WHERE name = 'enrol'").fetchone()
            assert kinds(copy).count("client enrolled") == clients == number + 1
