"""Requests of the admin for a server's folder."""

import socket
from datetime import UTC, datetime, timedelta

import httpx
import pytest
import torch
from offbeat_core.errors import OffbeatError
from offbeat_core.serving import certificates
from safetensors.torch import load_file

from offbeat.algorithms import SCAFFOLD
from offbeat.service.audit.verification import verify
from offbeat.service.server import admin
from offbeat.service.server.admin import clients, export_model, newest_model, revoke_client, revoke_token, runs, status
from tests.offbeat_command import offbeat_output
from tests.service.conftest import LENGTH, running

DELTA = torch.arange(float(LENGTH))


def test_the_status_and_the_list_show_the_progress_of_a_run(tmp_path):
    folder = tmp_path / "one"
    with running(folder, config={"algorithm": {"algorithm": "fedbuff"}}) as server:
        for peer in [server.enrol() for _ in range(3)]:
            peer.send(peer.check_in(), DELTA)
        now = status(folder)
        assert (now["version"], now["counted"], now["enrolled"], now["clients"]) == (1, 3, 3, 5)
        (found,) = runs(tmp_path)
        assert (found.folder, found.algorithm, found.version, found.counted) == (folder, "fedbuff", 1, 3)
        assert found.listens
        assert (
            offbeat_output("server", "list", tmp_path) == f"{folder}: fedbuff, version 1, listens, 3 updates counted\n"
        )
        assert "version: 1\n" in offbeat_output("server", "status", folder)
        with pytest.raises(OffbeatError, match="there is no client 'client-3'"):
            revoke_client(folder, "client-3")
        with pytest.raises(OffbeatError, match="there is no token 'nothing'"):
            revoke_token(folder, "nothing")
    (found,) = runs(folder)
    assert (found.listens, found.version) == (False, 1)
    with pytest.raises(OffbeatError, match="does not answer"):
        revoke_client(folder, "client-3")
    with pytest.raises(OffbeatError, match="is not a server's folder"):
        status(tmp_path)


@pytest.mark.parametrize("name", ["a#1", "a?mode=memory", "%41", "two words"])
def test_the_name_of_a_folder_may_have_characters_with_a_meaning_in_uris(name, tmp_path):
    folder = tmp_path / name
    with running(folder, config={"algorithm": {"algorithm": "fedbuff"}}) as server:
        server.enrol(name="ward 3")
        (found,) = runs(tmp_path)
        assert (found.folder, found.algorithm, found.listens) == (folder, "fedbuff", True)
    assert (folder / "offbeat.sqlite").exists()
    (found,) = runs(tmp_path)
    assert (found.folder, found.algorithm, found.listens) == (folder, "fedbuff", False)
    assert [client["name"] for client in clients(folder).clients] == ["ward 3"]
    assert verify(folder).number > 0


def test_a_server_that_is_slow_is_not_taken_for_a_stopped_one(tmp_path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        (tmp_path / "url").write_text(url)
        (tmp_path / "admin-token").write_text("oba_x")
        request = httpx.request
        monkeypatch.setattr(httpx, "request", lambda *args, **more: request(*args, **more | {"timeout": 0.1}))
        with pytest.raises(OffbeatError) as slow:
            revoke_client(tmp_path, "client-3")
    assert str(slow.value) == (
        f"the server of {tmp_path} does not answer as expected at {url}: wait, or look at its log (timed out)"
    )
    with pytest.raises(
        OffbeatError, match=f"the server of .* does not answer at {url}: start it, or wait if it is starting "
    ):
        revoke_client(tmp_path, "client-3")


def test_an_answer_that_is_not_offbeats_does_not_lead_to_a_start(tmp_path, monkeypatch):
    (tmp_path / "url").write_text("http://127.0.0.1:1")
    (tmp_path / "admin-token").write_text("oba_x")
    request = httpx.Request("GET", "http://127.0.0.1:1")
    for answer in (httpx.Response(502, request=request), httpx.Response(200, text="<html>", request=request)):
        monkeypatch.setattr(httpx, "request", lambda *_, answer=answer, **__: answer)
        with pytest.raises(OffbeatError, match="wait, or look at its log") as caught:
            admin.live_status(tmp_path)
        assert "start it" not in str(caught.value)


def test_a_clock_that_is_wrong_is_not_taken_for_a_stopped_server(tmp_path, monkeypatch):
    future = datetime.now(UTC) + timedelta(days=3)
    monkeypatch.setattr(certificates, "_now", lambda: future)
    made = certificates.make_certificates(tmp_path / "tls", ["localhost"])
    with running(tmp_path / "one", certificates=made), pytest.raises(OffbeatError) as refused:
        revoke_client(tmp_path / "one", "client-3")
    assert "compare the clocks" in str(refused.value)
    assert "start it" not in str(refused.value)


def test_a_server_on_the_port_of_another_one_is_not_taken_for_it(tmp_path):
    with running(tmp_path / "one") as one:
        one.enrol(name="ward 3")
    with running(tmp_path / "two") as two:
        (tmp_path / "one/url").write_text(f"{two.url}\n")
        with pytest.raises(OffbeatError) as caught:
            revoke_client(tmp_path / "one", "client-0")
        assert str(caught.value) == (
            f"the server at {two.url} does not know {tmp_path / 'one/admin-token'}: another folder's server may have "
            f"taken the port; start the server of {tmp_path / 'one'}"
        )
        assert status(tmp_path / "one")["server"] == "stopped"
        assert [client["name"] for client in clients(tmp_path / "one").clients] == ["ward 3"]
        assert [run.listens for run in runs(tmp_path)] == [False, True]


def test_the_newest_model_is_exported_without_the_vector_that_goes_to_clients_beside_it(tmp_path):
    with running(tmp_path / "one", lambda: SCAFFOLD(cohort=1, server_lr=1.0), clients=1) as server:
        peer = server.enrol()
        for _ in range(2):
            assert peer.send(peer.check_in(), DELTA)["counted"]
    output = tmp_path / "model.safetensors"
    assert offbeat_output("server", "export", tmp_path / "one", "--output", output) == f"Version 2: {output}\n"
    tensors = load_file(output)
    assert sorted(tensors) == ["bias", "weight"]
    assert torch.equal(torch.cat([tensors["weight"].view(-1), tensors["bias"]]), -2 * DELTA)
    with pytest.raises(OffbeatError, match="does not hold a model"):
        newest_model(tmp_path)


def test_an_export_goes_on_with_a_newer_model_if_the_server_deletes_the_one_that_it_began_with(tmp_path, monkeypatch):
    with running(tmp_path / "one", clients=1):
        pass
    newest = newest_model(tmp_path / "one")
    found = iter([newest.with_name("7.safetensors"), newest])
    monkeypatch.setattr("offbeat.service.server.admin.newest_model", lambda _: next(found))
    assert export_model(tmp_path / "one", tmp_path / "model.safetensors") == int(newest.stem)
    found = iter([newest])
    with pytest.raises(FileNotFoundError, match="nowhere"):
        export_model(tmp_path / "one", tmp_path / "nowhere" / "model.safetensors")
