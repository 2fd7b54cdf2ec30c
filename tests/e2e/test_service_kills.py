"""A server that is killed again and again while clients come and go: what it acknowledged counts once, and only once.

``OFFBEAT_SERVER_KILLS`` says how often; ``make torture`` does 200.
"""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.flapping import FEDAVG, FEDBUFF, acknowledged, flapping
from tests.e2e.server_process import Launcher, Server, until

pytestmark = pytest.mark.skipif(os.name == "nt", reason="sends signals")

KILLS = int(os.environ.get("OFFBEAT_SERVER_KILLS", "3"))
CLIENTS = 16


@pytest.mark.parametrize(("algorithm", "length"), [(FEDBUFF, 20), (FEDAVG, 300_000)], ids=["small", "large"])
def test_killed_at_random_it_loses_nothing_and_counts_nothing_twice(
    algorithm: str, length: int, launcher: Launcher, tmp_path: Path, say: Callable[[str], None]
) -> None:
    # There is room for those who enrol again, since the first kill came before the answer.
    with (
        Server(launcher, tmp_path, algorithm, length, 2 * CLIENTS) as server,
        flapping(server, length, CLIENTS) as (clients, numbers),
    ):

        def until_more() -> None:
            before = acknowledged(clients)
            until(lambda: acknowledged(clients) > before)

        for number in range(KILLS):
            if number % 4:  # else it has perhaps hardly started
                until_more()
            time.sleep(numbers.uniform(0.05, 0.5))
            assert server.kill() == signal.SIGKILL
            server.start()
        until_more()
    say(f"{KILLS} kills, {acknowledged(clients)} updates acknowledged")
