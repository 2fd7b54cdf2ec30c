"""Enrolment and admin tokens: listed, revoked, expired, and kept out of command lines."""

import re
import stat
import time

import pytest
from click.testing import CliRunner

from offbeat.cli import service as cli_service
from offbeat.errors import OffbeatError
from offbeat.service.server import admin
from tests.service.conftest import running
from tests.service.http_client import kind_of


def enrols(server, token):
    return server.peer(token).http.post("/v1/enrol", json={})


def run(command, *arguments):
    result = CliRunner().invoke(command, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_tokens_are_listed_without_the_tokens(server):
    made = server.admin.http.post("/v1/enrolment-tokens", json={"uses": 2, "expires_seconds": 100, "name": "ward 3"})
    assert enrols(server, made.json()["token"]).status_code == 201
    listed = server.admin.http.get("/v1/tokens").json()["tokens"]
    by_name = {(token["kind"], token["name"]): token for token in listed}
    assert set(by_name) == {
        ("admin", "in the server's folder"), ("enrolment", "in the server's folder"), ("enrolment", "ward 3"),
    }  # fmt: skip
    ward = by_name["enrolment", "ward 3"]
    assert (ward["state"], ward["uses"]) == ("valid", 1)
    assert 50 < ward["expires_seconds"] <= 100
    assert re.fullmatch(r"[0-9a-f]{12}", ward["id"])
    text = server.admin.http.get("/v1/tokens").text
    assert made.json()["token"][4:] not in text
    assert server.enrolment_token[4:] not in text


def test_only_an_admin_lists_makes_and_revokes(server):
    peer = server.enrol()
    for ask in (
        lambda http: http.get("/v1/tokens"),
        lambda http: http.post("/v1/admin-tokens", json={}),
        lambda http: http.delete("/v1/tokens/123456789abc"),
    ):
        assert kind_of(ask(peer.http), 403) == "foreign-token"
        assert kind_of(ask(server.peer(None).http), 401) == "no-token"
    assert kind_of(server.admin.http.delete("/v1/tokens/123456789abc"), 404) == "no-such-token"


def test_a_revoked_token_ends_at_once_and_stays_revoked(tmp_path):
    with running(tmp_path / "server") as server:
        made = server.admin.http.post("/v1/enrolment-tokens", json={"name": "ward 3"}).json()["token"]
        assert enrols(server, made).status_code == 201
        (which,) = [token["id"] for token in admin.tokens(tmp_path / "server") if token["name"] == "ward 3"]
        assert run(cli_service.revoke, tmp_path / "server", which) == f"{which}: revoked\n"
        assert kind_of(enrols(server, made), 401) == "revoked-token"
    with running(tmp_path / "server") as server:
        assert kind_of(enrols(server, made), 401) == "revoked-token"
        assert f"{which}: enrolment, revoked, ward 3\n" in run(cli_service.tokens, tmp_path / "server")
        with pytest.raises(OffbeatError, match="there is no token 'nothing'"):
            admin.revoke(tmp_path / "server", "nothing")


def test_a_client_is_revoked_by_a_command(tmp_path):
    with running(tmp_path / "server", burst=200) as server:
        peer = server.enrol()
        assert run(cli_service.revoke, tmp_path / "server", "client-0") == "client-0: revoked\n"
        assert kind_of(peer.http.post("/v1/checkin", json={}), 401) == "revoked-token"
        with pytest.raises(OffbeatError, match="no client 3 has enrolled"):
            admin.revoke(tmp_path / "server", "client-3")
        with pytest.raises(OffbeatError, match="write client-3"):
            admin.revoke(tmp_path / "server", "client-x")


def test_made_tokens_are_put_into_files_that_only_their_owner_reads_and_expire(tmp_path):
    folder, one, two = tmp_path / "server", tmp_path / "one", tmp_path / "two"
    with running(folder) as server:
        made = (cli_service.make_token, folder)
        assert (
            run(*made, "enrolment", "--uses", 1, "--name", "ward 3", "--output", one)
            == f"{one}: a new enrolment token\n"
        )
        run(*made, "admin", "--hours", 0.5 / 3600, "--output", two)
        assert stat.S_IMODE(one.stat().st_mode) == 0o600
        assert enrols(server, one.read_text().strip()).status_code == 201
        answer = enrols(server, one.read_text().strip())
        assert kind_of(answer, 401) == "revoked-token"
        assert "used up" in answer.json()["detail"]
        time.sleep(0.6)
        assert kind_of(server.peer(two.read_text().strip()).http.get("/v1/status"), 401) == "expired-token"
        shown = run(cli_service.tokens, folder)
        assert re.search(r"^[0-9a-f]{12}: enrolment, used up, ward 3$", shown, re.M)
        assert re.search(r"^[0-9a-f]{12}: admin, expired$", shown, re.M)
        assert re.search(r"^[0-9a-f]{12}: admin, valid, in the server's folder$", shown, re.M)
        with pytest.raises(OffbeatError, match=r"cannot write .*File exists"):
            run(*made, "admin", "--output", one)
        with pytest.raises(OffbeatError, match="--uses is for enrolment tokens"):
            run(*made, "admin", "--uses", 1, "--output", tmp_path / "three")
    with pytest.raises(OffbeatError, match="does not answer"):
        run(*made, "admin", "--output", tmp_path / "three")
    assert not (tmp_path / "three").exists()
