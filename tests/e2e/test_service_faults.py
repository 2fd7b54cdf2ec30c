"""A server whose system calls fail: what it acknowledged counts once, and no version changes its contents.

``OFFBEAT_SERVER_FAULTS`` says how many calls fail; ``make faults`` lets 200.
"""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.flapping import FEDASYNC, FEDBUFF, Flapping, acknowledged, flapping
from tests.e2e.server_process import Launcher, Server, until
from tests.e2e.tracer import Tracer, can_trace, draw

FAULTS = int(os.environ.get("OFFBEAT_SERVER_FAULTS", "4"))
CLIENTS = 6
_TRACE_SECONDS = 1.0


@pytest.mark.parametrize(("algorithm", "length"), [(FEDBUFF, 20), (FEDASYNC, 300_000)], ids=["small", "large"])
def test_whatever_fails_nothing_is_lost(
    algorithm: str, length: int, launcher: Launcher, tmp_path: Path, say: Callable[[str], None]
) -> None:
    if not can_trace():
        pytest.skip("strace is missing, or may not trace here: no system calls of the real server fail")
    outcomes: Counter[str] = Counter()
    with (
        Server(launcher, tmp_path, algorithm, length, CLIENTS) as server,
        flapping(server, length, CLIENTS) as (clients, numbers),
    ):
        for _ in range(max(1, FAULTS // 2)):
            outcomes[let_fail(server, clients, numbers)] += 1
    say(f"{dict(outcomes)}, {acknowledged(clients)} updates acknowledged")


def let_fail(server: Server, clients: list[Flapping], numbers: random.Random) -> str:
    """Let a system call of the server fail, start it again, and wait until it works; return what became of it."""

    def until_more() -> None:
        before = acknowledged(clients)
        until(lambda: server.has_ended() or acknowledged(clients) > before)

    until_more()
    fault = draw(server.folder, numbers)
    print(fault)
    with Tracer(server.process, fault) as tracer:
        time.sleep(_TRACE_SECONDS)
    if numbers.random() < 0.5:
        until_more()  # it has got over it
    status = server.kill()
    # Either it had ended with one line, or it was killed.
    assert status in (signal.SIGKILL, 2 << 8)
    assert tracer.injected or status == signal.SIGKILL, f"it ended though nothing failed: {fault}"
    if fault.error == "EMFILE":
        assert status == signal.SIGKILL, f"a free descriptor would have mended it: {fault}"
    server.start()
    until_more()
    if not tracer.injected:
        return "not met"
    return "killed later" if status == signal.SIGKILL else "ended"
