"""A server whose system calls fail: what it acknowledged counts once, and no version changes its contents.

``OFFBEAT_SERVER_FAULTS`` says how many calls fail; ``make faults`` lets 200.
"""

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.server_process import Server, ServerLauncher, until
from tests.e2e.test_service_kills import FEDASYNC, FEDBUFF, Flapping, vector_of
from tests.e2e.tracer import Tracer, can_trace, draw
from tests.e2e.undisturbed import Undisturbed
from tests.service.conftest import body_of

FAULTS = int(os.environ.get("OFFBEAT_SERVER_FAULTS", "6"))
CLIENTS = 6
_TRACE_SECONDS = 1.5


@pytest.mark.parametrize(("algorithm", "length"), [(FEDBUFF, 20), (FEDASYNC, 300_000)], ids=["small", "large"])
def test_whatever_fails_nothing_is_lost(
    algorithm: str, length: int, tmp_path: Path, say: Callable[[str], None]
) -> None:
    if not can_trace():
        pytest.skip("strace is missing, or may not trace here: no system calls of the real server fail")
    began = time.monotonic()
    seed = random.SystemRandom().randrange(2**32)
    print(f"random numbers from seed {seed}")  # shown if the test fails
    numbers = random.Random(seed)
    outcomes: Counter[str] = Counter()
    with (
        ServerLauncher(retry_seconds=0.2) as launcher,
        Server(launcher, tmp_path, algorithm, length, CLIENTS) as server,
    ):
        server.start()
        token, stop = server.token("enrolment"), threading.Event()
        clients = [Flapping(server.url, token, length, stop, numbers.randrange(2**32)) for _ in range(CLIENTS)]
        for client in clients:
            client.start()
        try:
            for _ in range(max(1, FAULTS // 2)):
                outcomes[let_fail(server, clients, numbers)] += 1
        finally:
            stop.set()
            for client in clients:
                client.join(30)
        assert server.kill(signal.SIGTERM) == 0

    assert [problem for client in clients for problem in client.problems] == []
    told = {(client.client, visit): receipt for client in clients for visit, receipt in client.told.items()}
    undisturbed = Undisturbed(server.file, server.folder, lambda c, v, *_: vector_of(c, v, length), body_of)
    undisturbed.check(told)
    for client in clients:
        if client.digests:
            undisturbed.check_reads(client.digests)
    say(f"{dict(outcomes)}, {len(told)} updates acknowledged, {time.monotonic() - began:.0f} s")


def let_fail(server: Server, clients: list[Flapping], numbers: random.Random) -> str:
    """Let a system call of the server fail, start it again, and wait until it works; return what became of it."""

    def until_more() -> None:
        before = sum(len(client.told) for client in clients)
        until(lambda: server.has_ended() or sum(len(client.told) for client in clients) > before)

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
