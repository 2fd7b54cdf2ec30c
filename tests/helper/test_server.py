import socket
import ssl

import httpx
import pytest

from offbeat.errors import OffbeatError
from tests.helper.conftest import enrol_clients, running


def test_a_helper_listens_over_https_and_can_be_started_again(tmp_path):
    enrol_clients(tmp_path)
    for _ in range(2):
        with running(tmp_path) as url:
            context = ssl.create_default_context(cafile=tmp_path / "tls" / "ca.pem")
            assert httpx.get(f"{url}/healthz", verify=context).text == "ok\n"
            with pytest.raises(OffbeatError, match="in use by another helper"), running(tmp_path):
                pass


def test_a_port_in_use_is_one_line(tmp_path, monkeypatch):
    enrol_clients(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr("tests.helper.conftest.PORT", port)
        with pytest.raises(OffbeatError, match=f":{port}: it is in use: choose another --host or --port"):
            running(tmp_path).__enter__()
