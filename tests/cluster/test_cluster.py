"""A whole cluster in a simulated world: ``python -m tests.cluster SEED`` shows what happens by a seed.

``OFFBEAT_CLUSTER_SECONDS`` says for how long; ``make simulate-cluster`` takes ten minutes, and other seeds each time.
"""

import itertools
import os
import re
import time

from tests.cluster.world import play

SECONDS = float(os.environ.get("OFFBEAT_CLUSTER_SECONDS", "8"))
FIRST_SEED = int(os.environ.get("OFFBEAT_CLUSTER_SEED", "0"))


def test_whatever_happens_the_cluster_keeps_its_promises() -> None:
    began = time.monotonic()
    for seed in itertools.count(FIRST_SEED):
        assert play(seed).promises.broken == [], f"python -m tests.cluster {seed} shows what happened"
        if time.monotonic() - began > SECONDS:
            break


def test_schedules_have_leaders_that_change_and_clients_that_are_served() -> None:
    lines = [line for seed in range(12) for line in play(seed, is_traced=True).lines]
    for what, least in (("leads", 20), ("receive version", 50), ("killed", 5), ("goes on", 3), ("leader_found", 10)):
        assert sum(what in line for line in lines) >= least, what


def test_a_seed_makes_one_schedule() -> None:
    one, two = (re.sub("tmp[a-z0-9_]+", "", "\n".join(play(7, is_traced=True).lines)) for _ in range(2))
    assert one == two
