"""Requests made up from the server's own description of itself: none is an error of the server, none harms others."""

from collections.abc import Generator
from typing import Any

import pytest
import schemathesis
import torch
from hypothesis import HealthCheck, Phase, given, settings
from requests import RequestException, Session

from tests.effort import cases
from tests.service.conftest import LENGTH, Served, running
from tests.service.http_client import kind_of

QUICK = settings(
    max_examples=cases(18),
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    with running(tmp_path_factory.mktemp("fuzzed") / "server", clients=10_000) as served:
        yield served


@pytest.fixture(scope="module")
def tokens(fuzzed: Served) -> dict[str, str]:
    client = fuzzed.enrol()
    assert client.check_in()
    return {
        "client": client.http.headers["authorization"],
        "admin": fuzzed.admin.http.headers["authorization"],
    }


def check(answer: Any) -> None:
    assert answer.status_code < 500 or answer.status_code == 503, answer.text
    if "application/problem+json" in answer.headers.get("content-type", ""):
        problem = answer.json()
        assert problem["status"] == answer.status_code
        assert len(problem["detail"].splitlines()) == 1


@pytest.mark.parametrize("who", ["client", "admin"])
def test_no_request_is_an_error_of_the_server(who: str, fuzzed: Served, tokens: dict[str, str]) -> None:
    described = schemathesis.openapi.from_url(f"{fuzzed.url}/openapi.json")
    # A new token would end the one that asks, and a client that is revoked asks no more.
    operations = [found.ok() for found in described.exclude(path=["/v1/token"]).get_all_operations()]
    assert len(operations) > 8
    with Session() as session:
        for operation in operations:

            @QUICK
            @given(case=operation.as_strategy())
            def fuzz(case: Any) -> None:
                if case.method == "DELETE" and who == "admin":
                    case.path_parameters["number"] = 5000
                if isinstance(case.body, dict) and isinstance(case.body.get("wait_seconds"), (int, float)):
                    case.body["wait_seconds"] = 0.0
                case.headers = {**(case.headers or {}), "Authorization": tokens[who]}
                try:
                    check(case.call(session=session, timeout=2))
                except RequestException:  # not sent by the library, or without the body that it announces
                    return

            fuzz()
        # A request may have paused or ended the run.
        session.post(f"{fuzzed.url}/v1/admin/resume", headers={"Authorization": tokens["admin"]}, timeout=2)
        later = {"versions": fuzzed.service.engine.coordinator.algorithm.version + 1000}
        session.post(f"{fuzzed.url}/v1/admin/extend", json=later, headers={"Authorization": tokens["admin"]}, timeout=2)


def test_afterwards_an_honest_client_still_counts(fuzzed: Served) -> None:
    peer = fuzzed.enrol()
    visit = peer.check_in()
    assert visit is not None
    assert peer.send(visit, torch.ones(LENGTH))["counted"]
    assert fuzzed.service.engine.coordinator.statistics.counted == 1
    assert kind_of(peer.http.get("/v1/models/999"), 404) == "no-such-version"
