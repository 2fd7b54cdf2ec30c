"""Strangers, other users and replays where fronts ask a real leader."""

import asyncio
import json
import logging
import os
import socket
import ssl
import stat
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from offbeat_core.tokens import token_hash

from offbeat.service.internal.internal_certificates import front_context, make_internal_certificates
from offbeat.service.internal.questions import INTERNAL_PROTOCOL, HandIn
from offbeat.service.store_settings import StoreSettings
from offbeat.service.updates.update_header import parse_header
from tests.forks import fork
from tests.postgres import postgres as postgres
from tests.postgres import store as store
from tests.service.conftest import Peer, Served, body_of, running
from tests.service.front_elsewhere import address_of, front_elsewhere, leading_elsewhere
from tests.service.http_client import NANS, ONES, check_log, kind_of, until
from tests.service.internal.ends import Raw, closed, raw
from tests.service.internal.test_internal_certificates import shake_hands

NOBODY = 65534


def hello(front: str) -> dict[str, Any]:
    return {"kind": "hello", "protocol": INTERNAL_PROTOCOL, "front": front * 32}


def hand_in(peer: Peer, visit: dict[str, Any], body: bytes, **changes: Any) -> dict[str, Any]:
    """Return the question of a front about a small update, as JSON."""
    header = parse_header(json.dumps(peer.head(visit, body)))
    question = HandIn(token=token_hash(str(peer.token)), visit=visit["number"], header=header, norm=1.0)
    return json.loads(question.model_dump_json()) | changes


def begun(peer: Peer) -> dict[str, Any]:
    visit = peer.check_in()
    assert visit is not None
    return visit


def test_strangers_at_the_port_for_fronts_are_not_heard(
    tmp_path: Path, store: StoreSettings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "offbeat.service")
    made = make_internal_certificates(tmp_path / "tls", ["leader", "standby"], ["front", "lost"])
    other = make_internal_certificates(tmp_path / "other", ["leader"], ["front"])
    false = front_context(other["front"])
    false.load_verify_locations(made["front"].ca)
    old = front_context(made["front"])
    old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_2
    without = ssl.create_default_context(cafile=made["front"].ca)
    strangers = [without, false, front_context(made["standby"]), old]
    with leading_elsewhere(tmp_path / "leader", store, made["leader"]) as leader:
        address = address_of(leader)
        with front_elsewhere(tmp_path / "front", store, leader, made["front"]) as peer:
            token = leader.enrol().token
            for context in strangers:
                with pytest.raises(ConnectionError):
                    asyncio.run(shake_hands(address, context))
            assert asyncio.run(bare_answer(address)) == b""
            client = peer(token)
            assert client.send(begun(client), ONES)["counted"]
        assert len([record for record in caplog.records if record.msg == "front_connected"]) == 1
        asyncio.run(shake_hands(address, front_context(made["lost"])))  # which the operator did not take back
    logged = str([vars(record).get("fields") for record in caplog.records])
    assert "Traceback" not in logged
    assert str(token) not in logged


async def bare_answer(address: tuple[str, int]) -> bytes:
    """Say hello without TLS; return what comes but TLS's own alerts."""
    reader, writer = await asyncio.open_connection(*address)
    end = Raw(reader, writer)
    end.ask(1, hello("a"))
    answer = await end.rest()
    await closed(writer)
    return b"" if answer[:1] in (b"", b"\x15") else answer


def test_another_clients_upload_is_neither_seen_nor_touched(tmp_path: Path, store: StoreSettings) -> None:
    made = make_internal_certificates(tmp_path / "tls", ["leader"], ["front"])
    with (
        leading_elsewhere(tmp_path / "leader", store, made["leader"]) as leader,
        front_elsewhere(tmp_path / "front", store, leader, made["front"]) as peer,
    ):
        one, two = (peer(leader.enrol().token) for _ in range(2))
        visit, other, body = begun(one), begun(two), body_of(ONES)
        assert visit["number"] == other["number"] == 0  # both have a visit of this number
        assert one.put(visit, body[:10], head=one.head(visit, body)).status_code == 202
        assert two.http.get("/v1/uploads/0").json()["offset"] == 0
        assert kind_of(two.put(other, body, offset=10, head=two.head(other, body)), 409) == "wrong-offset"
        assert kind_of(peer("obc_" + 43 * "A").put(visit, body, offset=10), 401) == "unknown-token"
        assert kind_of(two.put(other, body_of(NANS), head=two.head(other, body_of(NANS))), 422) == "not-finite"
        assert one.http.get("/v1/uploads/0").json()["offset"] == 10
        assert one.put(visit, body, offset=10, head=one.head(visit, body)).json()["receipt"]["counted"]


@pytest.fixture
def fronted(tmp_path: Path) -> Generator[Served]:
    """A server with one front in a process of its own."""
    with running(tmp_path / "server", front_processes=1) as server:
        yield server


def socket_of(server: Served) -> Path:
    until(lambda: server.fronts._socket is not None and server.fronts._socket.is_socket())
    path = server.fronts._socket
    assert path is not None
    return path


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_another_user_of_the_machine_cannot_reach_the_leaders_socket(fronted: Served) -> None:
    path = socket_of(fronted)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert path.is_socket()

    def connect() -> None:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        try:
            socket.socket(socket.AF_UNIX).connect(str(path))
        except PermissionError:
            sys.exit(13)

    assert os.waitstatus_to_exitcode(os.waitpid(fork(connect), 0)[1]) == 13
    if path.parent.parent.stat().st_mode & stat.S_ISVTX:  # and nobody can put another folder into its place
        assert path.parent.stat().st_uid == os.geteuid()


def test_replayed_messages_change_nothing(fronted: Served) -> None:
    peer, body = fronted.enrol(), body_of(ONES)
    question = hand_in(peer, visit := begun(peer), body)

    async def work() -> None:
        async with raw(socket_of(fronted), hello=hello("a")) as one, raw(socket_of(fronted), hello=hello("b")) as two:
            frame = one.ask(2, question, body)
            first = await one.read()
            assert first["hand_in"]["received"]["receipt"]["counted"]
            two.ask(2, question, body)
            again = await two.read()
            assert again["hand_in"]["received"]["receipt"] == first["hand_in"]["received"]["receipt"]
            two.ask(3, hand_in(peer, visit, body_of(2 * ONES)), body_of(2 * ONES))
            assert (await two.read())["refused"]["kind"] == "other-upload"
            one.writer.write(frame)
            assert await one.rest() == b""
            fronted.admin.http.delete("/v1/clients/0")
            two.ask(4, question, body)
            assert (await two.read())["refused"]["kind"] == "revoked-token"

    asyncio.run(work())
    assert fronted.service.engine.coordinator.statistics.counted == 1
    check_log(fronted.folder)


def test_a_front_of_one_client_cannot_speak_for_another(fronted: Served) -> None:
    one, two, body = fronted.enrol(), fronted.enrol(), body_of(ONES)
    visit, other = begun(one), begun(two)
    path = fronted.folder / "updates" / ("0-0-" + 16 * "a")
    path.write_bytes(body)

    async def work() -> None:
        async with raw(socket_of(fronted), hello=hello("a")) as end:
            for number, content in enumerate((
                hand_in(two, visit | {"number": 7}, body),
                hand_in(two, other, body, blob=path.name),
                hand_in(one, visit, body, token=64 * "0", blob="0-0-" + 16 * "b"),
            )):  # fmt: skip
                end.ask(2 + number, content, b"" if content["blob"] else body)
            kinds = [(await end.read())["refused"]["kind"] for _ in range(3)]
            assert sorted(kinds) == ["malformed-request", "no-such-visit", "unknown-token"]

    asyncio.run(work())
    assert path.read_bytes() == body
    assert fronted.service.engine.coordinator.statistics.counted == 0
    assert one.send(visit, ONES)["counted"]
