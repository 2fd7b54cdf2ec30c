"""Counts by client and extensions of a server that is killed at any moment."""

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from offbeat.service.audit.verification import entries, verify
from tests.e2e.flapping import FEDASYNC, FEDBUFF, acknowledged, check_counts, flapping, vector_of
from tests.e2e.server_process import Launcher, Server, until
from tests.e2e.undisturbed import Undisturbed
from tests.service.conftest import body_of

pytestmark = pytest.mark.skipif(os.name == "nt", reason="sends signals")

KILLS = 2
CLIENTS = 12
LENGTH = 20


def admin(server: Server, method: str, path: str, **body: Any) -> dict[str, Any]:
    """Ask a server that runs."""
    headers = {"Authorization": f"Bearer {server.token('admin')}"}
    answer = httpx.request(method, f"{server.url}{path}", headers=headers, timeout=60, verify=False, **body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_counts_are_exact_after_each_kill(launcher: Launcher, tmp_path: Path, say: Callable[[str], None]) -> None:
    with Server(launcher, tmp_path, FEDBUFF, LENGTH, CLIENTS, checkpoint_seconds=0.5) as server:
        with flapping(server, LENGTH, CLIENTS) as (clients, numbers):
            for _ in range(KILLS):
                before = acknowledged(clients)
                until(lambda: acknowledged(clients) > before + 5)  # noqa: B023
                time.sleep(numbers.uniform(0.0, 0.5))
                assert server.kill() == signal.SIGKILL
                told = {
                    (client.client, visit): receipt for client in clients for visit, receipt in [*client.told.items()]
                }
                undisturbed = Undisturbed(server.file, server.folder, lambda c, v, *_: vector_of(c, v, LENGTH), body_of)
                listed = check_counts(server.folder, undisturbed)
                for row in listed:  # nothing that a client was told is missing
                    counted = sum(receipt.counted for (client, _), receipt in told.items() if client == row["client"])
                    assert row["counted"] >= counted
                server.start()
            server.version()
        undisturbed = Undisturbed(server.file, server.folder, lambda c, v, *_: vector_of(c, v, LENGTH), body_of)
        listed = check_counts(server.folder, undisturbed)
        server.start()
        server.version()
        answer = admin(server, "GET", "/v1/admin/clients")
        for row, saved in zip(answer["clients"], listed, strict=True):
            if row["lost"] > saved["lost"]:  # its lease ended after the start
                assert (saved["working"], row["working"]) == (True, False)
                saved |= {"lost": saved["lost"] + 1, "working": False}
        assert answer == {"total": CLIENTS, "next": None, "clients": listed}
    counted, lost = (sum(row[name] for row in listed) for name in ("counted", "lost"))
    say(f"{KILLS} kills, {counted} updates counted, {lost} lost")


def test_a_server_that_is_killed_while_its_run_is_extended_keeps_what_it_has_answered(
    launcher: Launcher, tmp_path: Path
) -> None:
    numbers = random.Random(3)
    with (
        Server(launcher, tmp_path, FEDASYNC, LENGTH, CLIENTS, versions=5) as server,
        flapping(server, LENGTH, CLIENTS),
    ):
        end = 5
        for _ in range(KILLS):
            until(lambda: admin(server, "GET", "/v1/status")["finished"])
            answered: list[int] = []

            def extend(wanted: int, answered: list[int]) -> None:
                try:
                    admin(server, "POST", "/v1/admin/extend", json={"versions": wanted})
                except httpx.TransportError:
                    return
                answered.append(wanted)

            thread = threading.Thread(target=extend, args=(end + 3, answered))
            thread.start()
            time.sleep(numbers.uniform(0.0, 0.1))
            server.kill()
            thread.join()
            server.start()
            server.version()
            found = admin(server, "GET", "/v1/status")["stop_versions"]
            assert found in ([end + 3] if answered else [end, end + 3])
            verify(server.folder)
            extended = [entry["versions"] for entry in entries(server.folder) if entry["kind"] == "run extended"]
            assert max(extended, default=5) == found
            end = found
        until(lambda: admin(server, "GET", "/v1/status")["finished"])
        end = admin(server, "POST", "/v1/admin/extend", json={"versions": end + 3})["stop_versions"]
        until(lambda: admin(server, "GET", "/v1/status")["finished"])
        server.kill(signal.SIGTERM)
        server.file.write_text(server.file.read_text().replace("versions = 5", f"versions = {end + 2}"))
        server.start()
        until(lambda: server.version() == end + 2)
