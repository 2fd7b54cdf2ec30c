import socket
import ssl
from contextlib import ExitStack, suppress

import httpx
import pytest
from offbeat_core.errors import OffbeatError

from tests.offbeat_private.helper.conftest import enrol_clients, running


def test_a_helper_listens_over_https_and_can_be_started_again(tmp_path):
    enrol_clients(tmp_path)
    for _ in range(2):
        with running(tmp_path) as url:
            context = ssl.create_default_context(cafile=tmp_path / "tls" / "ca.pem")
            assert httpx.get(f"{url}/healthz", verify=context).text == "ok\n"
            with pytest.raises(OffbeatError, match="in use by another helper"), running(tmp_path):
                pass


def test_strangers_that_hold_connections_do_not_keep_the_server_out(tmp_path, monkeypatch):
    """As many as the helper accepts at all: those without a token are closed after a moment."""
    monkeypatch.setattr("offbeat_private.helper.server.max_connections", lambda _: 16)
    token = enrol_clients(tmp_path).token
    with running(tmp_path) as url, ExitStack() as held:
        context = ssl.create_default_context(cafile=tmp_path / "tls" / "ca.pem")
        port = int(url.rpartition(":")[2])
        for _ in range(20):
            stranger = held.enter_context(socket.create_connection(("127.0.0.1", port), 5))
            with suppress(OSError):  # closed, or not accepted yet
                held.enter_context(context.wrap_socket(stranger, server_hostname="127.0.0.1"))
        answer = httpx.get(f"{url}/v1/helper", verify=context, timeout=20, headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 200


def test_a_port_in_use_is_one_line(tmp_path, monkeypatch):
    enrol_clients(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr("tests.offbeat_private.helper.conftest.PORT", port)
        with pytest.raises(OffbeatError, match=f":{port}: it is in use: choose another --host or --port"):
            running(tmp_path).__enter__()
