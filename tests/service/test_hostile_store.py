"""A store of large files that refuses, is late, or answers with other bytes, between a front and its leader."""

import logging
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
import sqlalchemy as sa
import torch

from offbeat.service.blobs.open_blobs import open_blobs
from offbeat.service.front import front_process
from offbeat.service.internal.internal_certificates import make_internal_certificates
from offbeat.service.store import store as store_module
from offbeat.service.store_settings import StoreSettings
from tests.fault_proxy import Fault, FaultProxy, fault_proxy
from tests.object_store import object_store as object_store
from tests.postgres import postgres as postgres
from tests.service.conftest import Peer, Served, body_of
from tests.service.front_elsewhere import front_elsewhere, leading_elsewhere
from tests.service.http_client import ONES, kind_of

KEYS = {"AWS_ACCESS_KEY_ID": "AKIDHOSTILE", "AWS_SECRET_ACCESS_KEY": "HOSTILE+SECRET+KEY"}
ALWAYS = 50  # more often than any request is repeated


class Pair(NamedTuple):
    """A leader, clients of its front, and the proxy before the store of both."""

    leader: Served
    peer: Callable[[str | None], Peer]
    proxy: FaultProxy


@pytest.fixture(scope="module")
def pair(postgres: str, object_store: str, tmp_path_factory: pytest.TempPathFactory) -> Generator[Pair]:
    folder = tmp_path_factory.mktemp("hostile")
    httpx.put(f"{object_store}/offbeat/first", content=b"x", timeout=60, verify=False)  # which takes long
    made = make_internal_certificates(folder / "tls", ["leader"], ["front"])
    store = StoreSettings(log=postgres.replace("+psycopg", ""), blobs="s3://offbeat/hostile")
    with pytest.MonkeyPatch.context() as patch, fault_proxy(object_store) as proxy:
        for name, value in KEYS.items():
            patch.setenv(name, value)
        for name, value in (("ENDPOINT_URL", proxy.address), ("ALLOW_HTTP", "true"), ("REGION", "us-east-1")):
            patch.setenv(f"AWS_{name}", value)
        for module in (store_module, front_process):
            patch.setattr(module, "open_blobs", partial(open_blobs, request_seconds=0.5))
        with (
            leading_elsewhere(folder / "leader", store, made["leader"]) as leader,
            front_elsewhere(folder / "front", store, leader, made["front"]) as peer,
        ):
            yield Pair(leader, peer, proxy)
    engine = sa.create_engine(postgres)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE IF EXISTS log, bodies, runs, servers")
    engine.dispose()


def put_large(peer: Peer, number: int, visit: dict[str, object]) -> httpx.Response:
    """Upload in two parts, from where an earlier attempt has ended."""
    body = body_of(ONES)
    state = peer.http.get(f"/v1/uploads/{number}").json()
    head, offset = peer.head(visit, body), state["offset"]
    if not offset:
        assert peer.put(visit, body[:10], head=head).status_code == 202
        offset = 10
    return peer.put(visit, body, offset=offset, head=head)


@pytest.mark.parametrize(
    ("method", "fault", "times"),
    [
        ("PUT", Fault.FORBIDDEN, 1),
        ("PUT", Fault.UNAVAILABLE, 3),
        ("PUT", Fault.LATE, 1),
        ("PUT", Fault.LATE_ANSWER, 1),
        ("PUT", Fault.LOST_ANSWER, 1),
        ("PUT", Fault.OTHER_BYTES_UP, 1),
        ("GET", Fault.FORBIDDEN, 1),
        ("GET", Fault.UNAVAILABLE, 3),
        ("GET", Fault.LATE, 3),
        ("GET", Fault.SHORT_ANSWER, 3),
        ("GET", Fault.OTHER_BYTES_DOWN, 1),
    ],
)
def test_a_faulty_store_costs_a_client_an_attempt_and_shows_it_nothing(
    method: str, fault: Fault, times: int, pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    before = pair.leader.service.engine.coordinator.statistics.counted
    peer = pair.peer(pair.leader.enrol().token)
    visit = peer.check_in()
    assert visit is not None
    pair.proxy.plan(method, fault, times)
    said = ""
    for _ in range(5):
        answer = put_large(peer, visit["number"], visit)
        said += answer.text
        if answer.status_code == 200:
            break
        assert kind_of(answer, 503) == "busy"
    assert answer.json()["receipt"]["counted"]
    assert [planned for planned in pair.proxy._planned if planned.times] == []
    assert pair.leader.service.engine.coordinator.statistics.counted == before + 1
    assert len(torch.unique(pair.leader.service.engine.coordinator.algorithm.model)) == 1
    logged = "\n".join(f"{record.getMessage()} {vars(record).get('fields', '')}" for record in caplog.records)
    tokens = [str(peer.token), *KEYS.values(), str(pair.leader.admin.token)]
    assert not any(token in text for token in tokens for text in (said, logged))
    assert "s3:" not in said
    assert "127.0.0.1" not in said
    assert "Traceback" not in logged
    assert "question_failed" not in logged
    for folder in (pair.leader.folder / "partial", pair.leader.folder.parent / "front" / "updates"):
        assert [path for path in folder.iterdir() if path.is_file()] == []


@pytest.mark.parametrize("fault", [Fault.FORBIDDEN, Fault.UNAVAILABLE, Fault.OTHER_BYTES_DOWN])
def test_a_faulty_store_delays_a_download(fault: Fault, pair: Pair) -> None:
    peer = pair.peer(pair.leader.enrol().token)
    visits = [pair.peer(pair.leader.enrol().token) for _ in range(2)]
    for other in visits:
        begun = other.check_in()
        assert begun is not None
        assert other.send(begun, ONES)["counted"]  # a version that the front does not have
    visit = peer.check_in()
    assert visit is not None
    pair.proxy.plan("GET", fault, 3)
    answer = peer.http.get(f"/v1/models/{visit['version']}")
    for planned in pair.proxy._planned:
        planned.times = 0
    assert kind_of(answer, 503) == "busy"
    assert "s3:" not in answer.text
    whole = peer.http.get(f"/v1/models/{visit['version']}").content
    path: Path = pair.leader.service.engine.models.path(visit["version"])
    assert whole == path.read_bytes()
