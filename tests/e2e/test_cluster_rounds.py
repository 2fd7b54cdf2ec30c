"""Rounds of a cluster of real parts: whichever dies, sleeps, or is cut off, no update is lost or counted twice.

``OFFBEAT_ROUNDS`` says how many; ``make torture-cluster`` plays 100. In each all troubles come once, in any order.
"""

import os
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.cluster import Cluster, Front
from tests.e2e.flapping import FEDBUFF, Flapping, acknowledged
from tests.e2e.private_service import NET, Command, PrivateService
from tests.e2e.rounds import ROUNDS, Rounds, seeded
from tests.e2e.server_process import Launcher, Server
from tests.e2e.test_private_service import CASES, Case, check
from tests.e2e.test_take_over import CLIENTS, check_nothing_lost, rows_of

SMALL, LARGE = 20, 17_000  # parameters: updates in rows, and as blobs


@pytest.mark.skipif(os.name == "nt", reason="sends signals")
@pytest.mark.parametrize(
    "length", [pytest.param(LARGE, id="blobs"), pytest.param(SMALL, id="rows", marks=pytest.mark.long)]
)
def test_whatever_befalls_a_cluster_nothing_is_lost_or_counted_twice(
    length: int, launcher: Launcher, tmp_path: Path, say: Callable[[str], None]
) -> None:
    (seed, numbers), stop = seeded(), threading.Event()

    def make(kind: type[Server], launcher: Launcher, folder: Path, sections: str) -> Server:
        return kind(launcher, folder, FEDBUFF, length, CLIENTS, extra=sections)

    with ExitStack() as stack:
        cluster = Cluster(stack, launcher, tmp_path, make)
        first = cluster.leader()
        clients = [
            Flapping(cluster.url, first.token("enrolment"), length, stop, numbers.randrange(2**32))
            for _ in range(CLIENTS)
        ]

        def has_advanced() -> Callable[[], bool]:
            before = acknowledged(clients)
            return lambda: acknowledged(clients) > before

        rounds = Rounds(cluster, numbers, has_advanced)
        for client in clients:
            client.start()
        try:
            rounds.go_on()
            rounds.play(say)
            rounds.go_on()
        finally:
            stop.set()
            for client in clients:
                client.join(30)
        check_nothing_lost(clients, cluster.stop(), cluster.log_url, length)
    say(f"{ROUNDS} rounds, {acknowledged(clients)} updates acknowledged, seed {seed}")
    say(rounds.summary())


class PrivateCluster(PrivateService):
    """A private run of a cluster."""

    def __init__(self, stack: ExitStack, launcher: Launcher, folder: Path, case: Case) -> None:
        self._stack = stack
        self.last: Server | None = None
        super().__init__(
            launcher, folder, f"algorithm = 'fedbuff'\n{case.algorithm}", least=case.least, places=case.places,
            payload=case.payload,
        )  # fmt: skip

    def _serve(self, settings: Callable[..., str]) -> list[str]:
        def make(kind: type[Server], launcher: Launcher, folder: Path, sections: str) -> Server:
            process = kind(launcher, folder, "", 4, CLIENTS)
            (folder / "own_model.py").write_text(NET)
            process.file.write_text(settings(port=process.port, tls="false") + sections)
            return process

        self.cluster = Cluster(self._stack, self._launcher, self._folder, make)
        leader = self.cluster.leader()
        leader.token("enrolment")
        return [self.cluster.url, "--token-file", str(leader.folder / "enrolment-token")]

    def _server_folder(self) -> Path:
        return (self.last or self.cluster.leader()).folder

    def _status(self) -> dict[str, Any] | None:
        leader = self.cluster.leader()
        with suppress(httpx.TransportError):
            answer = httpx.get(
                f"{leader.url}/v1/status", headers={"Authorization": f"Bearer {leader.token('admin')}"}, verify=False
            )
            return answer.json() if answer.is_success else None
        return None

    def _stop(self) -> None:
        self.last = self.cluster.stop()

    def _receipts(self) -> list[str]:
        return [row[3] for row in rows_of(self.cluster.log_url) if row[2] == "receive"]


@pytest.mark.skipif(os.name == "nt", reason="sends signals")
@pytest.mark.long
def test_a_private_run_survives_whatever_befalls_its_cluster_its_helper_and_its_clients(
    launcher: Launcher, tmp_path: Path, say: Callable[[str], None]
) -> None:
    (seed, numbers), case = seeded(), CASES["fedbuff"]
    with ExitStack() as stack:
        service = PrivateCluster(stack, launcher, tmp_path, case)

        def has_advanced() -> Callable[[], bool]:
            before = sum(map(len, service.acknowledged().values()))
            return lambda: sum(map(len, service.acknowledged().values())) > before

        def restart(process: Command) -> None:
            process.kill()
            process.start()

        rounds = Rounds(service.cluster, numbers, has_advanced)
        rounds.troubles["helper killed"] = lambda: restart(service.helper)
        rounds.troubles["client killed"] = lambda: restart(numbers.choice(service.clients))
        rounds.go_on()
        rounds.play(say)
        rounds.go_on()
        final = service.end()
        counted, sums = check(service, final, case)
    say(f"{ROUNDS} rounds, {counted} updates counted, {len(sums)} sums, seed {seed}")
    say(rounds.summary())


def test_a_front_needs_its_sections_and_says_so(launcher: Launcher, tmp_path: Path) -> None:
    with Front(launcher, tmp_path, FEDBUFF, 20, CLIENTS) as front:
        front.start()
        assert os.waitstatus_to_exitcode(front.wait()) != 0
        assert "needs [store] and [fronts]" in front.log.read_text()
    with pytest.raises(httpx.TransportError):
        httpx.get(front.url)
