"""A real server of several runs, one of which has a disk that is really full."""

import os
import shutil
import signal
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.e2e.flapping import FEDBUFF
from tests.e2e.host_process import LENGTH, Host
from tests.e2e.server_process import until
from tests.service.conftest import Peer
from tests.service.http_client import kind_of
from tests.service.store.test_disk_full import SmallDisk, fill

pytestmark = pytest.mark.skipif(
    shutil.which("unshare") is None or os.geteuid() != 0, reason="only root can make a small disk"
)


def test_the_other_runs_go_on_while_the_disk_of_one_is_full(tmp_path: Path) -> None:
    with (
        SmallDisk(tmp_path, "server/runs/small") as launcher,
        Host(launcher, tmp_path, clients=4) as server,
        ExitStack() as stack,
    ):
        server.start()
        for name in ("small", "good"):
            body = {"name": name, "file": server.text(name, FEDBUFF)}
            assert server.ask("POST", "/v1/runs", json=body).status_code == 201
        enrolment = stack.enter_context(closing(Peer(server.url, server.token("enrolment")).http))
        token = enrolment.post("/v1/enrol", json={}).json()["token"]
        root, at = (
            Peer(server.url, token),
            {name: Peer(f"{server.url}/runs/{name}", token) for name in ("small", "good")},
        )
        for peer in (root, *at.values()):
            stack.enter_context(closing(peer.http))

        def work() -> str | None:
            run = root.http.post("/v1/work", json={}).json()["run"]
            if run is not None:
                visit = at[run].check_in()
                assert visit is not None
                assert at[run].send(visit, torch.ones(LENGTH))["counted"]
            return run

        def status() -> dict[str, dict[str, Any]]:
            return {run["name"]: run for run in server.ask("GET", "/v1/status").json()["runs"]}

        assert {work() for _ in range(2)} == {"small", "good"}
        small = launcher.disk

        def is_full() -> bool:
            fill(small)  # also what the run has released
            return at["small"].http.post("/v1/checkin", json={}).status_code == 503

        until(is_full)
        fill(small)
        assert kind_of(at["small"].http.post("/v1/checkin", json={}), 503) == "no-space"
        assert [work() for _ in range(3)] == ["good"] * 3
        assert status()["small"]["problem"] is not None
        assert status()["good"]["problem"] is None

        server.kill(signal.SIGKILL)
        server.start()
        until(lambda: status()["good"]["state"] == "at work")
        assert work() == "good"
        (small / "filler").unlink()
        found = set[str | None]()
        until(lambda: found.add(work()) or found >= {"small", "good"})
        assert status()["small"]["counted"] >= 2
