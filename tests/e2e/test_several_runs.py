"""Sites of two runs that are killed, at a server that is killed: in each run every update counts once.

``OFFBEAT_SERVER_KILLS`` says how often somebody is killed; ``make torture`` does 200.
"""

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.client_processes import ClientProcess
from tests.e2e.host_process import Host
from tests.e2e.server_process import Launcher, until
from tests.e2e.test_service_bad_lines import FEDBUFF, SCAFFOLD, check_notes, encoded, learnt
from tests.e2e.undisturbed import Undisturbed

pytestmark = pytest.mark.skipif(os.name == "nt", reason="sends signals")

KILLS = int(os.environ.get("OFFBEAT_SERVER_KILLS", "3"))
CLIENTS = 3
RUNS = {
    "one": FEDBUFF.replace("buffer_size = 3", "buffer_size = 2"),
    "two": SCAFFOLD.replace("cohort = 3", "cohort = 2"),
}


def test_whoever_is_killed_each_update_counts_once_in_its_run(
    launcher: Launcher, tmp_path: Path, say: Callable[[str], None]
) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"random numbers from seed {seed}")  # shown if the test fails
    numbers = random.Random(seed)
    (tmp_path / "gate").write_text(str(10**9))
    with Host(launcher, tmp_path, CLIENTS) as server:
        server.start()
        for name, algorithm in RUNS.items():
            answer = server.ask("POST", "/v1/runs", json={"name": name, "file": server.text(name, algorithm)})
            assert answer.status_code == 201, answer.text
        options = {"url": server.url, "token": server.token("enrolment"), "gate": str(tmp_path / "gate")}
        clients = [ClientProcess(launcher, tmp_path / f"client-{number}", **options) for number in range(CLIENTS)]
        try:
            for _ in range(KILLS):
                before = server.counted()
                until(lambda before=before: all(map(int.__gt__, server.counted(), before)))
                time.sleep(numbers.uniform(0.0, 0.3))
                for client in numbers.sample(clients, numbers.randrange(CLIENTS + 1)):
                    client.strike()
                    client.start_again()
                if numbers.random() < 0.5:
                    assert server.kill() == signal.SIGKILL
                    server.start()
            for name in RUNS:
                assert server.ask("POST", f"/runs/{name}/v1/admin/end").json()["finished"]
            assert [client.wait() for client in clients] == [0] * CLIENTS
        finally:
            for client in clients:
                print(client.said)
        assert server.kill(signal.SIGTERM) == 0

    for name, file in server.files.items():
        undisturbed = Undisturbed(file, server.folder / "runs" / name, learnt, encoded)
        undisturbed.check({})
        for client in clients:
            check_notes(client.notes(name), undisturbed)
        counted = sum(receipt.counted for receipt in undisturbed.receipts.values())
        say(f"run {name}: {KILLS} kills, {counted} updates counted")
