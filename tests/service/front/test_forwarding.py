"""Requests that a front passes on to the leader."""

from collections import Counter
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.service.conftest import Served, running
from tests.service.http_client import ask, kind_of, line


@pytest.fixture(scope="module")
def fronts(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    with running(tmp_path_factory.mktemp("forwarding") / "server", front_processes=1, clients=1000) as server:
        yield server


def test_a_body_in_chunks_arrives(fronts: Served) -> None:
    peer = fronts.enrol()
    answer = peer.http.post("/v1/examples", content=iter([b'{"examples"', b": 5}"]))
    assert (answer.status_code, answer.json()) == (200, {"examples": 5})


def test_many_clients_enrol_at_once(fronts: Served) -> None:
    token = (fronts.folder / "enrolment-token").read_text().strip()

    def enrol(number: int) -> int:
        headers = {"authorization": f"Bearer {token}", **fronts.peer(None).http.headers}
        return httpx.post(
            f"{fronts.url}/v1/enrol", json={"name": f"c{number}"}, headers=headers, timeout=60, verify=False
        ).status_code

    with ThreadPoolExecutor(60) as pool:
        assert Counter(pool.map(enrol, range(120))) == {201: 120}


@pytest.mark.parametrize(("method", "path"), [("POST", "/v1/enrol"), ("PUT", "/v1/probe")])
def test_the_body_of_a_stranger_is_not_read(fronts: Served, method: str, path: str) -> None:
    with line(fronts) as stranger:
        stranger.begin(method, path, length=1000)
        assert kind_of(stranger.answer(), 401) == "no-token"  # before any byte of the body
    peer = fronts.enrol()
    assert peer.http.put("/v1/probe", content=bytes(2**18)).json() == {"bytes": 2**18}
    assert kind_of(peer.http.put("/v1/probe", content=bytes(2**18 + 1)), 413) == "too-large"


@pytest.mark.parametrize(
    "path", ["/%ff", "/v1//uploads/0", "/v1/uploads/0%2f..", "/v1/uploads/../status", "/v1/models/0/"]
)
def test_odd_addresses_are_of_nothing(fronts: Served, path: str) -> None:
    assert kind_of(ask(fronts, fronts.enrol(), "GET", path), 404) == "not-found"


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "DELETE"])
def test_other_methods_are_refused_as_by_the_leader(fronts: Served, method: str) -> None:
    answer = ask(fronts, fronts.enrol(), method, "/v1/uploads/0")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, PUT")


@pytest.mark.parametrize("processes", [0, 1])
def test_long_headers_are_refused(tmp_path: Path, processes: int) -> None:
    with running(tmp_path / "server", front_processes=processes) as server:
        peer, long = server.enrol(), "x" * 1025
        answer = ask(server, peer, "POST", "/v1/checkin", f"Offbeat-Supports: {long}", body=b"{}")
        assert kind_of(answer, 400) == "malformed-request"
        assert kind_of(ask(server, peer, "GET", "/v1/models/0", f"If-None-Match: {long}"), 400) == "malformed-request"
        assert peer.check_in()["version"] == 0
