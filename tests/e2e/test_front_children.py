"""Fronts on the leader's machine: they end with it, however it ends."""

import os
import signal
import socket
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.e2e.cluster import is_ready
from tests.e2e.flapping import FEDBUFF
from tests.e2e.server_process import Launcher, Server, until


class Fronted(Server):
    """A server with two fronts in processes of their own."""

    program = ("server", "start", "--fronts", "2")

    def fronts(self) -> list[int]:
        """Return the processes of the fronts."""
        found = list[int]()
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == self.process and b"spawn_main" in (path / "cmdline").read_bytes():
                    found.append(int(path.name))
        return found

    def stall(self) -> socket.socket:
        """Begin a request that does not end by itself for 20 s."""
        connection = socket.create_connection(("127.0.0.1", self.port))
        token = self.token("enrolment")
        head = f"POST /v1/enrol HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: 9\r\n\r\n"
        connection.sendall(head.encode())
        time.sleep(0.5)
        return connection


def exists(process: int) -> bool:
    return Path(f"/proc/{process}").exists()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc")
def test_fronts_end_with_a_leader_that_is_killed_or_stopped(launcher: Launcher, tmp_path: Path) -> None:
    with Fronted(launcher, tmp_path, FEDBUFF, 20, 9) as server:
        server.start()
        until(lambda: is_ready(server.url))
        fronts = server.fronts()
        assert len(fronts) == 2
        with closing(server.stall()):
            server.kill()
            began = time.monotonic()
            until(lambda: not any(map(exists, fronts)))
            assert time.monotonic() - began < 5
        server.start()  # at once: nobody else listens
        until(lambda: is_ready(server.url))
        fronts = server.fronts()
        with closing(server.stall()):
            # Ctrl-C reaches all processes; a front without requests ends earlier than the other, which waits for its.
            for process in [*fronts, server.process]:
                os.kill(process, signal.SIGINT)
            until(lambda: sum(map(exists, fronts)) == 1)
            time.sleep(0.5)  # the leader looks for fronts that have ended, and must know why this one has
        assert server.wait() == 0
        log = server.log.read_text()
        assert "fronts_ended" not in log
        assert "KeyboardInterrupt" not in log
