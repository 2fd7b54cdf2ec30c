"""While the server's own log cannot be written nothing that belongs into it is acknowledged."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from offbeat.service.log import log_writer
from offbeat.service.log.log import LogUnavailableError, Row
from offbeat.service.log.sql_log import SqlLog
from tests.service.hosting.conftest import Host
from tests.service.http_client import until

SITE = 0
RUN = {"name": "two", "file": '{"algorithm": "fedasync"}'}
REQUESTS: dict[str, tuple[str, str, str, Any]] = {
    "enrolment": ("enrolment", "POST", "/v1/enrol", {"name": "new"}),
    "another token": ("site", "POST", "/v1/token", None),
    "labels": ("admin", "POST", f"/v1/sites/{SITE}/labels", {"labels": ["gpu"]}),
    "name": ("admin", "POST", f"/v1/sites/{SITE}/rename", {"name": "A"}),
    "revocation": ("admin", "DELETE", f"/v1/sites/{SITE}", None),
    "deletion": ("admin", "DELETE", f"/v1/sites/{SITE}/data", None),
    "run": ("admin", "POST", "/v1/runs", RUN),
    "token": ("admin", "POST", "/v1/tokens", {"kind": "enrolment", "labels": ["gpu"]}),
}


@contextmanager
def unwritable(server: Host, monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Let the server's own log take no rows within the context."""
    append, home = SqlLog._append, server.service.home.log_writer.log

    def fail(log: SqlLog, rows: Sequence[Row], after: tuple[int, int]) -> None:
        if log is home:
            raise LogUnavailableError("planted")
        append(log, rows, after)

    with monkeypatch.context() as patch:
        patch.setattr(log_writer, "_RETRY_SECONDS", 0.02)
        patch.setattr(SqlLog, "_append", fail)
        yield
    until(lambda: not server.service.home.log_writer.is_blocked)


@pytest.mark.parametrize("name", REQUESTS)
def test_no_change_is_acknowledged_before_it_is_on_disk(
    name: str, server: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.create("one", algorithm="fedasync")
    tokens = {"admin": server.admin.token, "enrolment": server.token("enrolment"), "site": server.enrol("a").token}
    who, method, path, body = REQUESTS[name]
    http = server.peer(tokens[who]).http
    with unwritable(server, monkeypatch):
        answer = http.request(method, path, json=body)
        assert answer.status_code == 503, answer.text


def test_no_run_has_a_site_before_the_server_knows(server: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    server.create("one", algorithm="fedasync")
    site = server.enrol("a")
    with unwritable(server, monkeypatch):
        assert site.find_work()["run"] is None
        assert len(server.run("one").accounts) == 0
    assert site.find_work()["run"] == "one"
