"""A server that is killed at any moment: its audit log holds all that was answered."""

import random
import threading
import time
from pathlib import Path

import httpx
from offbeat_core.messages import PROTOCOL

from offbeat.service.audit.verification import LogHead, entries, verify
from tests.e2e.server_process import Launcher, Server, until

FEDBUFF = "algorithm = 'fedbuff'\nbuffer_size = 3\nconcurrency = 8"
KILLS = 2


def test_a_killed_server_leaves_a_chain_with_all_that_was_answered(launcher: Launcher, tmp_path: Path) -> None:
    numbers = random.Random(5)
    enrolled: set[int] = set()
    heads: list[LogHead] = []

    def enrol(url: str, token: str) -> None:
        with httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {token}", "Offbeat-Protocol": PROTOCOL},
            timeout=30.0,
            verify=False,
        ) as http:
            while True:
                try:
                    answer = http.post("/v1/enrol", json={})
                except httpx.TransportError:
                    return
                assert answer.status_code == 201, answer.text
                enrolled.add(answer.json()["client"])

    with Server(launcher, tmp_path, FEDBUFF, 6, clients=100_000) as server:
        for kill in range(KILLS):
            server.start()
            assert server.version() == 0
            threads = [threading.Thread(target=enrol, args=(server.url, server.token("enrolment"))) for _ in range(3)]
            before = len(enrolled)
            for thread in threads:
                thread.start()
            until(lambda: len(enrolled) > before)  # noqa: B023
            time.sleep(numbers.uniform(0.0, 0.2))
            server.kill()
            for thread in threads:
                thread.join()
            heads.append(verify(server.folder, heads))
            assert enrolled <= {entry["client"] for entry in entries(server.folder) if "client" in entry}
            assert sum(entry["kind"] == "server started" for entry in entries(server.folder)) == kill + 1
