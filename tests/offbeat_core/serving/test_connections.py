"""Limit of connections per address: strangers keep nobody out, and who works keeps its connection."""

import socket
from contextlib import ExitStack
from pathlib import Path

import pytest
from offbeat_core.serving.connections import Connections, pause_after

from tests.service.conftest import running
from tests.service.http_client import line, until


class Listener:
    """A listening socket, and the connections to it."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._socket = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.port = self._socket.getsockname()[1]

    def connect(self, address="127.0.0.1"):
        """Return a connection, and the server's end of it."""
        there = ("127.0.0.1", self.port)
        opened = self._stack.enter_context(socket.create_connection(there, source_address=(address, 0)))
        accepted, _ = self._socket.accept()
        return opened, self._stack.enter_context(accepted)


@pytest.fixture
def listener():
    with ExitStack() as stack:
        yield Listener(stack)


def is_open(opened):
    opened.settimeout(0.05)
    try:
        return opened.recv(1) != b""
    except TimeoutError:
        return True


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_an_address_keeps_its_places_and_others_theirs(listener):
    connections = Connections(listener.port, 2)
    first = [listener.connect("127.0.0.2")[0] for _ in range(5)]
    second = [listener.connect("127.0.0.1")[0] for _ in range(2)]
    before = descriptors()
    assert connections.shut_down_excess() == 3
    assert [is_open(opened) for opened in (*first, *second)].count(True) == 4
    assert all(map(is_open, second))
    assert connections.shut_down_excess() == 0
    assert descriptors() == before


def test_strangers_are_closed_first_then_idle_connections_then_the_newest_request(listener):
    connections = Connections(listener.port, 5)
    opened = [listener.connect()[0] for _ in range(5)]
    _stranger, idle, recent, busy, _newest = opened
    peers = [connection.getsockname() for connection in opened]
    for peer in peers[1:3]:
        connections.trust(peer, "obc_1")
    with connections.request(peers[3]):
        assert connections.shut_down_excess() == 0
        opened.append(listener.connect()[0])
        connections.shut_down_excess()
        connections.max_per_address = 4
        connections.trust(opened[-1].getsockname(), "obc_2")
        connections.shut_down_excess()
        assert [is_open(connection) for connection in opened] == [False, True, True, True, False, True]
        for most, gone in ((3, idle), (2, recent), (1, opened[-1])):
            connections.max_per_address = most
            assert connections.shut_down_excess() == 1
            assert not is_open(gone)
        assert is_open(busy)


def test_one_token_keeps_the_last_of_its_connections(listener):
    connections = Connections(listener.port, 10)
    opened = [listener.connect()[0] for _ in range(13)]
    for connection in opened[:-1]:
        connections.trust(connection.getsockname(), "obc_1")
    assert connections.max_per_token == 8
    assert connections.shut_down_excess() == 3
    # The newcomer, without a token, is newer than the others that do not count as such with one.
    assert [is_open(connection) for connection in opened] == [False] * 3 + [True] * 10


def test_connections_that_have_closed_are_forgotten():
    connections = Connections(1, 1000)
    for port in range(1, 2500):
        connections.trust(("127.0.0.2", port), "obc_1")
    assert connections.shut_down_excess() == 0
    assert len(connections._last) == 0


@pytest.mark.parametrize(
    ("took", "is_crowded", "pause"), [(0.001, False, 0.25), (0.03, False, 1.5), (0.001, True, 0.05), (0.03, True, 0.3)]
)
def test_to_look_takes_little_of_the_time(took, is_crowded, pause):
    assert pause_after(took, is_crowded=is_crowded) == pytest.approx(pause)


def test_a_descriptor_that_is_another_file_by_now_is_left_alone(listener, tmp_path):
    connections = Connections(listener.port, 1)
    (one, accepted), (two, _) = listener.connect(), listener.connect()
    connections._look([str(accepted.fileno())])
    accepted.close()
    with (tmp_path / "file").open("w") as file:
        connections.shut_down_excess()
        assert not file.closed
    assert is_open(two)
    assert not is_open(one)


def test_a_client_with_a_token_keeps_its_connection_among_strangers_of_its_address(tmp_path):
    with running(tmp_path / "server", connections_per_address=20) as server, ExitStack() as stack:
        peer = server.enrol()
        with line(server, peer) as own:
            own.begin("GET", "/v1/models/latest")
            assert own.answer().status_code == 307
            strangers = [stack.enter_context(line(server)) for _ in range(60)]
            until(lambda: sum(not is_open(stranger.socket) for stranger in strangers) >= 40)
            own.begin("GET", "/v1/models/latest")
            assert own.answer().status_code == 307
            for stranger in strangers:
                stranger.close()
        assert peer.check_in() is not None
