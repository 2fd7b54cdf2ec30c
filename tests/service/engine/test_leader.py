"""The leader's answers to questions that no honest front asks, or that come again."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from offbeat_core.tokens import token_hash
from pydantic import BaseModel, ValidationError

from offbeat.service.engine.leader import Leader
from offbeat.service.internal.questions import HandIn, Question
from offbeat.service.refusal import Refusal
from offbeat.service.updates.update_header import Header, parse_header
from tests.service.conftest import Peer, Served, body_of
from tests.service.http_client import NANS, ONES, check_log, check_progress

NAME = "0-0-" + 16 * "a"


def ask(server: Served, question: Question[Any]) -> BaseModel:
    return asyncio.run_coroutine_threadsafe(server.front.leader.ask(question), server.loop).result(10)


def refused(server: Served, question: Question[Any]) -> str:
    with pytest.raises(Refusal) as caught:
        ask(server, question)
    return caught.value.kind


def hand_in(peer: Peer, visit: dict[str, Any], body: bytes, name: str, norm: float = 1.0) -> HandIn:
    header: Header = parse_header(json.dumps(peer.head(visit, body)))
    assert peer.token is not None
    return HandIn(token=token_hash(peer.token), visit=visit["number"], header=header, norm=norm, blob=name)


@pytest.mark.parametrize("name", ["../models/0.safetensors", "0-0-" + 15 * "a", NAME + "\n", "/etc/passwd", ""])
def test_a_file_outside_the_folder_cannot_be_named(server: Served, name: str) -> None:
    peer = server.enrol()
    with pytest.raises(ValidationError):
        hand_in(peer, cast(dict[str, Any], peer.check_in()), body_of(ONES), name)


def test_the_file_of_another_client_stays(server: Served) -> None:
    one, two = server.enrol(), server.enrol()
    first, second = one.check_in(), two.check_in()
    assert first is not None
    assert second is not None
    path = server.folder / "updates" / NAME
    path.write_bytes(body_of(NANS))
    assert refused(server, hand_in(two, second, body_of(ONES), NAME)) == "malformed-request"
    assert path.exists()


def test_an_update_whose_file_has_been_deleted_gets_no_row(server: Served) -> None:
    peer = server.enrol()
    visit, body = peer.check_in(), body_of(ONES)
    assert visit is not None
    path = server.folder / "updates" / NAME
    path.write_bytes(body)
    assert refused(server, hand_in(peer, visit, body, NAME, norm=1e38)) == "norm-too-large"
    assert not path.exists()
    # The front's connection broke, and it asks again, when the limit has risen.
    assert refused(server, hand_in(peer, visit, body, NAME)) == "busy"
    assert server.service.engine.coordinator.statistics.counted == 0
    assert peer.send(visit, ONES)["counted"]
    check_progress(server, [peer, server.enrol()])
    check_log(server.folder)


def test_the_file_of_a_client_that_was_revoked_in_the_meantime_is_deleted(server: Served) -> None:
    peer = server.enrol()
    visit, body = peer.check_in(), body_of(ONES)
    assert visit is not None
    path = server.folder / "updates" / NAME
    path.write_bytes(body)
    assert server.admin.http.delete("/v1/clients/0").status_code == 204
    assert refused(server, hand_in(peer, visit, body, NAME)) == "revoked-token"
    assert not path.exists()


def test_a_large_update_under_way_counts_while_the_server_is_stopped(server: Served) -> None:
    peer = server.enrol()
    visit, body = peer.check_in(), body_of(ONES)
    assert visit is not None
    (server.folder / "updates" / NAME).write_bytes(body)
    server.service.is_ready = False
    ask(server, hand_in(peer, visit, body, NAME))
    assert server.service.engine.coordinator.statistics.counted == 1


def test_a_version_is_stored_once_for_all_fronts_unless_that_failed() -> None:
    stored, problems, versions = list[str](), [OSError("away")], {3}

    class Shared:
        async def upload(self, path: Path, name: str) -> None:
            await asyncio.sleep(0)
            if problems:
                raise problems.pop()
            stored.append(name)

    async def work() -> None:
        leader = Leader.__new__(Leader)
        leader._engine = cast(Any, SimpleNamespace(models=SimpleNamespace(versions=lambda: versions)))
        leader._stored = {}

        async def share(version: int) -> None:
            await leader._share(cast(Any, Shared()), version, Path("x"), "ab" * 32)

        with pytest.raises(OSError, match="away"):
            await share(3)
        await asyncio.gather(share(3), share(3))
        await share(3)
        assert stored == ["models/3-" + "ab" * 8]
        versions.add(4)
        await share(4)
        versions.remove(3)  # its file may be deleted now
        await share(4)
        assert len(stored) == 2
        assert set(leader._stored) == {4}

    asyncio.run(work())
