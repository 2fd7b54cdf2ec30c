import socket

import pytest

from offbeat.errors import OffbeatError
from offbeat.service.server.http_server import listen
from tests.service.conftest import running


def test_a_free_port_is_found_and_a_used_one_is_one_line(tmp_path):
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        assert port > 0
        assert listener.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        message = f"cannot listen at 127.0.0.1:{port}: it is in use: set service.host or service.port"
        with pytest.raises(OffbeatError, match=message):
            listen("127.0.0.1", port)
        with pytest.raises(OffbeatError, match=message):
            running(tmp_path / "server", port=port).__enter__()


def test_an_address_of_another_machine_is_one_line():
    with pytest.raises(OffbeatError, match=r"cannot listen at 192\.0\.2\.1:0"):
        listen("192.0.2.1", 0)
