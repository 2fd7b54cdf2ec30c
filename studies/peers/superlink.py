"""Flower's SuperLink beside Offbeat's server.

Updates have 40 MB, and ten of them make a model. The measurement of Flower is described in ``on_superlink.py``. Flower
is installed in an environment of its own, ``build/peers/superlink``; its output goes to ``build/peers/superlink.log``.
If it cannot be installed or fails, it is left out with a line on stderr.
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Protocol

from service_load import Load

from peers.run import BUILD, installed

BYTES = 40_000_000  # of an update
# Clients, updates, state, and what the clients are. 32 SuperNodes would be 100 processes and more.
VARIANTS = [
    (8, 32, "memory", "threads"),
    (8, 32, "SQLite", "threads"),
    (8, 24, "memory", "SuperNodes"),
    (8, 24, "SQLite", "SuperNodes"),
    (32, 64, "memory", "threads"),
]
Variant = tuple[int, int, str, str]


class Ours(Protocol):
    """Offbeat's server with its clients."""

    def load(self) -> Load:
        """Measure it once."""
        ...

    def stop(self) -> None:
        """End it."""
        ...


def rows(repetitions: int, ours: Callable[[int], Ours]) -> Iterator[dict[str, Any]]:
    """Yield a row a variant; each repetition of it comes right after one of ours."""
    BUILD.mkdir(parents=True, exist_ok=True)
    path = BUILD / "superlink.log"
    with path.open("w") as log:
        try:
            python = installed("superlink", log)
            for variant in VARIANTS:
                yield _row(python, variant, repetitions, ours, log)
        except (subprocess.CalledProcessError, OSError) as failure:
            lines = path.read_text().strip().splitlines() or [str(failure)]
            print(f"superlink: left out: {lines[-1]} ({path})", file=sys.stderr)


def _row(python: Path, variant: Variant, repetitions: int, ours: Callable[[int], Ours], log: IO[str]) -> dict[str, Any]:
    connections, updates, state, clients = variant
    command = [python, Path(__file__).with_name("on_superlink.py"), str(connections), str(updates)]
    command += ["--database"] if state == "SQLite" else []
    command += ["--nodes"] if clients == "SuperNodes" else []
    own_rates: list[float] = []
    theirs: list[dict[str, Any]] = []
    for _ in range(repetitions):
        # A new one each time: SuperNodes take longer than our server keeps lines over which nothing is asked.
        server = ours(connections)
        try:
            own_rates.append(server.load().per_second)
        finally:
            server.stop()
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, text=True, check=True)
        theirs.append(json.loads(done.stdout))
    rates = [row["updates_per_second"] for row in theirs]
    ratios = [own / rate for own, rate in zip(own_rates, rates, strict=True)]
    rate = statistics.median(rates)
    return {
        "case": "flower",
        "connections": connections,
        "tls": False,
        "gb_per_second": round(rate * BYTES / 1e9, 3),
        "updates_per_second": round(rate, 2),
        "server_rss_mib": max(row["server_rss_mib"] for row in theirs),
        "peer": f"flwr {theirs[0]['version']}",
        "state": state,
        "clients": clients,
        "ours_per_second": round(statistics.median(own_rates), 2),
        "times_as_fast": round(statistics.median(ratios), 1),
        "spread": [round(min(ratios), 1), round(max(ratios), 1)],
    }
