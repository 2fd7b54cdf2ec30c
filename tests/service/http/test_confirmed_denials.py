"""Answers that a server without the lead must not give."""

import asyncio

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.service.log.open_log import open_log
from offbeat.service.log.term import Term
from tests.postgres import postgres as postgres
from tests.postgres import store as store
from tests.service.conftest import running
from tests.service.http_client import kind_of


async def take_lead(store):
    """Lead the log, as another server does."""
    log = open_log(store.log)
    try:
        term = Term(log, "another")
        while not await term.lead():
            async for _ in term.follow():
                pass
    finally:
        log.close()


def replaced(folder, store):
    with running(folder, store=store) as server:
        peer, stranger = server.enrol(), server.peer("obc_" + 43 * "a")
        assert kind_of(stranger.http.post("/v1/checkin", json={}), 401) == "unknown-token"
        assert kind_of(peer.http.get("/v1/uploads/7"), 404) == "no-such-visit"
        asyncio.run(take_lead(store))
        for answer in (stranger.http.post("/v1/checkin", json={}), peer.http.get("/v1/uploads/7")):
            assert kind_of(answer, 503) == "stopping"
        assert kind_of(peer.http.post("/v1/checkin", json={}), 503) == "stopping"  # for whose visit it has no row


def test_a_server_that_was_replaced_denies_nothing_and_ends(tmp_path, store):
    with pytest.raises(OffbeatError, match="another server leads now"):
        replaced(tmp_path / "server", store)
