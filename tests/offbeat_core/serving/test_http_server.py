import asyncio
import resource
import socket
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import httpx
import pytest
import torch
from offbeat_core.errors import OffbeatError
from offbeat_core.serving.http_server import UnreadBody, listen, max_connections, raise_file_limit

from tests.e2e.server_process import Server
from tests.service.conftest import Peer, running

SOFT, HARD = 150, 300


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
    with pytest.raises(OffbeatError, match=r"cannot listen at 192\.0\.2\.1:0"):  # another machine's
        listen("192.0.2.1", 0)


def test_a_limit_that_leaves_no_room_for_connections_is_refused():
    assert max_connections(10**6) == 4000
    assert max_connections(1024) == 464
    with pytest.raises(OffbeatError, match=r"100 files .*ulimit -n 1024"):
        max_connections(100)


def test_the_soft_limit_is_raised_to_the_hard_one():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
        raised = raise_file_limit()
        assert raised == resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= min(soft, hard, 2**16)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_idle_connections_neither_end_the_server_nor_lock_others_out(launcher, tmp_path):
    algorithm = "algorithm = 'fedbuff'\nbuffer_size = 1\nconcurrency = 4"
    with (
        Server(launcher, tmp_path, algorithm, length=6, clients=2, versions=1000) as server,
        ExitStack() as stack,
    ):
        server.start(files=(SOFT, HARD))
        assert server.version() == 0
        with closing(Peer(server.url, server.token("enrolment")).http) as http:
            peer = Peer(server.url, http.post("/v1/enrol", json={}).json()["token"])
        stack.enter_context(closing(peer.http))
        peer.check_in()
        for number in range(3 * HARD):
            stranger = stack.enter_context(closing(socket.socket()))
            stranger.bind((f"127.0.0.{1 + number % 2}", 0))
            stranger.setblocking(False)
            with suppress(BlockingIOError):
                stranger.connect(("127.0.0.1", server.port))
        time.sleep(0.5)
        assert f"Max open files            {HARD} " in Path(f"/proc/{server.process}/limits").read_text()
        assert len(list(Path(f"/proc/{server.process}/fd").iterdir())) < HARD - 32
        for number in range(5):
            visit = peer.check_in()
            assert visit["number"] == number
            assert peer.send(visit, torch.ones(6))["counted"]
        began = time.monotonic()
        with httpx.Client(transport=httpx.HTTPTransport(verify=False, local_address="127.0.0.3")) as http:
            for _ in range(3):
                ready = http.get(f"{server.url}/readyz", headers={"Connection": "close"}, timeout=15)
                assert ready.text == "ok\n"
        assert time.monotonic() - began < 10
        assert not server.has_ended()


LENGTH, CHUNKED = (b"content-length", b"4"), (b"transfer-encoding", b"chunked")


@pytest.mark.parametrize(
    ("headers", "pieces", "ends"),
    [
        ([LENGTH], [b"ab", b"cd"], [False, True]),
        ([LENGTH], [b"abcd"], [True]),
        ([LENGTH], [b"ab"], [False]),
        ([CHUNKED], [b"abcd", b"ef"], [False, False]),
        ([CHUNKED], [b"abcd", b""], [False, True]),
        ([LENGTH, CHUNKED], [b"abcd", b"ef"], [False, False]),
        ([CHUNKED, LENGTH], [b"abcd"], [False]),
        ([LENGTH], [], []),
        ([], [], [True]),
        ([(b"content-length", b"0")], [], [True]),
    ],
)
def test_a_body_ends_with_its_last_announced_byte_and_the_connection_closes_before_it(headers, pieces, ends):
    came, sent = [], []
    left = [{"type": "http.request", "body": piece, "more_body": piece != b""} for piece in pieces]

    async def receive():
        return left.pop(0)

    async def send(message):
        sent.append(message)

    async def app(_, receive, send):
        came.extend([await receive() for _ in ends])
        await send({"type": "http.response.start", "status": 200, "headers": []})

    asyncio.run(UnreadBody(app)({"type": "http", "headers": headers}, receive, send))
    assert [not message["more_body"] for message in came] == ends
    closes = (b"connection", b"close") in sent[0]["headers"]
    assert closes == (True not in ends)
    assert not left
