import json
import time
from dataclasses import replace

import pytest
from offbeat_client.client_folder.identity import ClientFolder
from offbeat_client.http.connection import Backoff, Connection
from offbeat_client.http.enrolment import declare, identify, renew
from offbeat_core.errors import OffbeatError
from offbeat_core.http.service_errors import ServiceError
from offbeat_core.messages import CheckedIn

from tests.service.conftest import running


@pytest.fixture
def folder(tmp_path):
    with ClientFolder(tmp_path) as folder:
        yield folder


def test_a_client_enrols_once(server, connection, folder, fault):
    server.faults["POST", "/v1/enrol"] = [fault(401, "unknown-token")]
    with pytest.raises(ServiceError):
        identify(connection, folder, "obe_0", None)
    assert folder.identity(connection.url) is None
    server.heard.clear()
    identity = identify(connection, folder, "\ufeffobe_1\r\n", "ward-3")  # with the mark and the line end of an editor
    assert (identity.client, identity.token, identity.renew_at) == (2, "obc_1", None)
    assert identify(connection, folder, None, None) == identity
    assert server.paths("POST") == ["/v1/enrol"]
    assert server.heard[0][2]["Authorization"] == "Bearer obe_1"
    assert connection.token == "obc_1"


def test_a_client_whose_answer_was_lost_is_the_same_client(tmp_path, folder, monkeypatch):
    with running(tmp_path / "server") as server, Connection(server.url) as line:
        with monkeypatch.context() as patched:
            patched.setattr(ClientFolder, "keep_identity", lambda *_: pytest.fail("killed"))
            with pytest.raises(pytest.fail.Exception):
                identify(line, folder, server.enrolment_token, None)
        assert identify(line, folder, server.enrolment_token, None).client == 0
        assert server.admin.http.get("/v1/status").json()["enrolled"] == 1
        assert not (folder.path / "enrolling.json").exists()


@pytest.mark.parametrize(
    ("token", "name", "message"),
    [
        (None, None, "give an enrolment token with --token"),
        ("obe_tökén", None, "is empty or has characters that no token has: copy it again"),
        ("token", "a" * 101, "name has 101 characters; it may have at most 100"),
    ],
)
def test_a_missing_or_garbled_token_and_a_long_name_are_refused(connection, folder, token, name, message):
    with pytest.raises(OffbeatError, match=message):
        identify(connection, folder, token, name)


def test_before_the_first_answer_attempts_end_soon(server, folder, fault):
    for_ever = Backoff(first_seconds=0.001, largest_seconds=0.002)
    server.faults["POST", "/v1/enrol"] = [fault(503, "busy")] * 50
    with Connection(server.url, backoff=for_ever) as line:
        with pytest.raises(ServiceError):
            identify(line, folder, "obe_1", None)
        assert len(server.heard) == 6
        server.faults["POST", "/v1/enrol"] = []
        identify(line, folder, "obe_1", None)
        server.faults["POST", "/v1/checkin"] = [fault(503, "busy")] * 50
        assert line.ask("POST", "/v1/checkin", CheckedIn).finished


def test_a_token_is_renewed_in_the_middle_of_its_life(server, connection, folder, monkeypatch):
    server.expires_seconds = 1000.0
    began = time.time()
    identity = identify(connection, folder, "obe_1", None)
    assert began + 500 <= identity.renew_at <= time.time() + 500
    assert renew(connection, folder, identity) == identity
    monkeypatch.setattr(time, "time", lambda: began + 600)
    other = renew(connection, folder, identity)
    assert (other.client, other.token, other.renew_at) == (2, "obc_2", began + 1100)
    assert connection.token == "obc_2"
    assert folder.identity(connection.url) == other
    assert json.loads((folder.path / "identity.json").read_text())["token"] == "obc_2"


def test_a_client_declares_its_examples_once_and_remembers_that_it_has(server, connection, folder):
    identity = identify(connection, folder, "obe_1", None)
    assert declare(connection, folder, identity, None) == identity
    declared = declare(connection, folder, identity, 60)
    assert declared.examples == 60
    assert declare(connection, folder, declared, 60) == identify(connection, folder, None, None) == declared
    assert server.paths("POST") == ["/v1/enrol", "/v1/examples"]
    renewed = renew(connection, folder, replace(declared, renew_at=0.0))
    assert (renewed.token, renewed.examples) == ("obc_3", 60)
