"""Rounds of a cluster of real parts: whichever dies, sleeps, or is cut off, no update is lost or counted twice.

``OFFBEAT_ROUNDS`` says how many; ``make torture-cluster`` plays 100. In each all troubles come once, in any order.
"""

import os
import random
import signal
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.cluster import Cluster, Front, is_ready
from tests.e2e.flapping import FEDBUFF, Flapping, acknowledged
from tests.e2e.links import Cut
from tests.e2e.server_process import Launcher, Server, until
from tests.e2e.test_take_over import CLIENTS, check_nothing_lost

ROUNDS = int(os.environ.get("OFFBEAT_ROUNDS", "1"))
SMALL, LARGE = 20, 17_000  # parameters: updates in rows, and as blobs


class Rounds:
    """Plays rounds with a cluster.

    Args:
        cluster: The cluster.
        numbers: Decides what happens, and when.
        has_advanced: Returns a function that says whether the run has advanced since.

    Attributes:
        seconds: By trouble, from its beginning to the next advance; a take-over's once the next server leads.
        take_overs: Seconds from a leader's loss to the first update that the next one acknowledges.
        ready: Seconds from a leader's loss until the next one is ready.
    """

    def __init__(self, cluster: Cluster, numbers: random.Random, has_advanced: Callable[[], Callable[[], bool]]):
        self.seconds = dict[str, list[float]]()
        self.take_overs = list[float]()
        self.ready = list[float]()
        self.troubles: dict[str, Callable[[], Any]] = {
            "leader killed": self._kill_the_leader,
            "leader stopped": self._stop_the_leader,
            "leader cut off from the log": self._cut_off_the_leader,
            "leader cut off from the log for a moment": partial(self._cut_off_the_leader, most_seconds=1.0),
            "standby killed": lambda: cluster.kill(cluster.other(cluster.leader())),
            "front killed": lambda: cluster.kill(numbers.choice(cluster.fronts)),
            "fronts cut off from the leader": lambda: self._cut_off(cluster.cut_leaders, cluster.fronts),
            "fronts cut off from the store": lambda: self._cut_off(cluster.cut_store, cluster.fronts),
            "store killed": lambda: cluster.kill_store(numbers.uniform(0.0, 1.0)),
            "PostgreSQL restarted": lambda: cluster.restart_log("fast"),
            "PostgreSQL crashed": lambda: cluster.restart_log("immediate"),
        }
        self._cluster = cluster
        self._numbers = numbers
        self._has_advanced = has_advanced

    def play(self) -> None:
        """Let each trouble come once."""
        for name in self._numbers.sample(list(self.troubles), len(self.troubles)):
            time.sleep(self._numbers.uniform(0.05, 0.3))
            began, before = time.monotonic(), len(self.take_overs)
            print(f"{time.strftime('%H:%M:%S')} {name}", flush=True)
            self.troubles[name]()
            if len(self.take_overs) == before:
                self.go_on()
                self.seconds.setdefault(name, []).append(time.monotonic() - began)
            else:
                self.seconds.setdefault(name, []).append(self.take_overs[-1])

    def go_on(self) -> None:
        """Wait until the run has advanced."""
        has_advanced = self._has_advanced()

        def look() -> bool:
            self._cluster.mend()
            return has_advanced()

        until(look)

    def summary(self) -> str:
        """Return the distribution of seconds, of take-overs and by trouble."""
        lines = [
            f"{len(self.take_overs)} take-overs",
            f"    seconds until the next leader is ready: {_distribution(self.ready)}",
            f"    until it has acknowledged an update: {_distribution(self.take_overs)}",
            "seconds until the next acknowledged update:",
        ]
        lines += [f"    {name}: {_distribution(seconds)}" for name, seconds in sorted(self.seconds.items())]
        return "\n".join(lines)

    def _kill_the_leader(self) -> None:
        leader, began = self._cluster.leader(), time.monotonic()
        self._cluster.kill(leader)
        self._note_take_over(began)

    def _stop_the_leader(self) -> None:
        leader, began = self._cluster.leader(), time.monotonic()
        leader.strike(signal.SIGSTOP)
        until(lambda: is_ready(self._cluster.other(leader).url))
        self._note_take_over(began)
        leader.strike(signal.SIGCONT)
        self._expect_the_end_of(leader)

    def _cut_off_the_leader(self, most_seconds: float | None = None) -> None:
        leader, began = self._cluster.leader(), time.monotonic()
        self._cluster.cut_log(leader, self._kind())
        if most_seconds is not None:
            time.sleep(self._numbers.uniform(0.1, most_seconds))
            self._cluster.heal()
            return
        until(lambda: is_ready(self._cluster.other(leader).url))
        self._note_take_over(began)
        self._cluster.heal()
        self._expect_the_end_of(leader)

    def _note_take_over(self, began: float) -> None:
        """Wait until a server leads and the run has advanced with it."""
        self._cluster.leader()
        self.ready.append(time.monotonic() - began)
        self.go_on()
        self.take_overs.append(time.monotonic() - began)

    def _expect_the_end_of(self, replaced: Server) -> None:
        until(replaced.has_ended)
        assert "another server leads now" in replaced.log.read_text()
        self._cluster.mend()

    def _cut_off(self, cut: Callable[[Server, Cut], None], processes: list[Server]) -> None:
        kind = self._kind()
        for process in self._numbers.sample(processes, self._numbers.randint(1, len(processes))):
            cut(process, kind)
        time.sleep(self._numbers.uniform(0.3, 3.5))
        self._cluster.heal()

    def _kind(self) -> Cut:
        return self._numbers.choice(list(Cut))


def _distribution(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    late = ordered[min(int(0.95 * len(ordered)), len(ordered) - 1)]
    return f"{ordered[0]:.1f} min, {statistics.median(ordered):.1f} median, {late:.1f} 95 %, {ordered[-1]:.1f} max"


@pytest.mark.skipif(os.name == "nt", reason="sends signals")
@pytest.mark.parametrize(
    "length", [pytest.param(LARGE, id="blobs"), pytest.param(SMALL, id="rows", marks=pytest.mark.long)]
)
def test_whatever_befalls_a_cluster_nothing_is_lost_or_counted_twice(
    length: int, launcher: Launcher, tmp_path: Path, say: Callable[[str], None]
) -> None:
    seed = int(os.environ.get("OFFBEAT_SEED") or random.SystemRandom().randrange(2**32))
    print(f"OFFBEAT_SEED={seed}")
    numbers, stop = random.Random(seed), threading.Event()

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
            for _ in range(ROUNDS):
                rounds.play()
            rounds.go_on()
        finally:
            stop.set()
            for client in clients:
                client.join(30)
        check_nothing_lost(clients, cluster.stop(), cluster.log_url, length)
    say(f"{ROUNDS} rounds, {acknowledged(clients)} updates acknowledged, seed {seed}")
    say(rounds.summary())


def test_a_front_needs_its_sections_and_says_so(launcher: Launcher, tmp_path: Path) -> None:
    with Front(launcher, tmp_path, FEDBUFF, 20, CLIENTS) as front:
        front.start()
        assert os.waitstatus_to_exitcode(front.wait()) != 0
        assert "needs [store] and [fronts]" in front.log.read_text()
    with pytest.raises(httpx.TransportError):
        httpx.get(front.url)
