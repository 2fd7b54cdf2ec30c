"""Rounds of troubles that befall a cluster, and how long each lasts."""

import os
import random
import signal
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.e2e.cluster import Cluster, is_ready
from tests.e2e.links import Cut
from tests.e2e.server_process import Server, until

ROUNDS = int(os.environ.get("OFFBEAT_ROUNDS", "1"))


def seeded() -> tuple[int, random.Random]:
    """Return the seed of ``OFFBEAT_SEED``, or a new one, and its numbers."""
    seed = int(os.environ.get("OFFBEAT_SEED") or random.SystemRandom().randrange(2**32))
    print(f"OFFBEAT_SEED={seed}")
    return seed, random.Random(seed)


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
            "rolling upgrade": self._upgrade,
        }
        self._cluster = cluster
        self._numbers = numbers
        self._has_advanced = has_advanced

    def play(self, say: Callable[[str], None]) -> None:
        """Play all rounds: in each, every trouble comes once; ``say`` shows a line every ten rounds."""
        for number in range(1, ROUNDS + 1):
            for name in self._numbers.sample(list(self.troubles), len(self.troubles)):
                self._meet(name)
            if number % 10 == 0:
                say(f"{time.strftime('%H:%M:%S')} {number} rounds, {len(self.take_overs)} take-overs")

    def _meet(self, name: str) -> None:
        time.sleep(self._numbers.uniform(0.05, 0.3))
        print(f"{time.strftime('%H:%M:%S')} {name}")
        began, before = time.monotonic(), len(self.take_overs)
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

    def _upgrade(self) -> None:
        """Stop and start fronts, then the standby, then the leader, as with a new version of the program."""
        leader = self._cluster.leader()
        standby = self._cluster.other(leader)
        stood_by = standby.log.read_text().count("stands_by")
        for process in (*self._cluster.fronts, standby):
            self._cluster.restart(process)
            if process is not standby:
                until(lambda: is_ready(process.url))  # noqa: B023
        until(lambda: standby.log.read_text().count("stands_by") > stood_by)
        began = time.monotonic()
        self._cluster.restart(leader)
        self._note_take_over(began)

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
