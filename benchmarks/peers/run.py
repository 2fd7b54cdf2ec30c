"""The client updates per second that other simulators train.

The peers are pfl-research, Flower, fluke and FLGo. ``make bench-peers``, or ``python benchmarks/peers/run.py [--only
NAME] [--workload W1] [--quick]``. The workloads are those of ``benchmarks/simulation.py``, and so are the lines of JSON
and the table that it prints. A peer is installed in an environment of its own, ``build/peers/NAME``, when that is
missing or the requirements have changed. The output of pip and of the peer goes to ``build/peers/NAME.log``. A peer
that cannot be installed or fails is left out with a line on stderr.

The measurement of a row is described in ``measure.py``, and the parts that it leaves out in ``on_NAME.py``. Figures are
medians of five repetitions, with ``--quick`` of two.
"""

import argparse
import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

HERE = Path(__file__).resolve().parent
BUILD = HERE.parents[1] / "build" / "peers"
PEERS = ("pfl", "flwr", "fluke", "flgo")
WORKLOADS = ("W1", "W2")
# Flower and Ray would otherwise report that they are used, and Flower keep its sources in the home directory.
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "FLWR_HOME": str(BUILD / "flwr" / "home")}


def installed(peer: str, log: IO[str]) -> Path:
    """Return the Python of the peer's environment, made or renewed where it has to be."""
    home = BUILD / peer
    requirements = HERE / "requirements" / f"{peer}.txt"
    # What pip has installed from; it is written last, so that an installation that was interrupted is done again.
    stamp = home / "installed.txt"
    python = home / "bin" / "python"
    if not stamp.exists() or stamp.read_text() != requirements.read_text():
        print(f"{peer}: installing", file=sys.stderr)
        venv.create(home, clear=True, with_pip=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", requirements]
        subprocess.run(pip, stdout=log, stderr=log, check=True)
        stamp.write_text(requirements.read_text())
    return python


def rows_of(peer: str, workloads: tuple[str, ...], repetitions: int) -> Iterator[dict[str, Any]]:
    """Yield the peer's rows; if it fails, say why and leave the rest out."""
    BUILD.mkdir(parents=True, exist_ok=True)
    path = BUILD / f"{peer}.log"
    try:
        with path.open("w") as log:
            python = installed(peer, log)
            for workload in workloads:
                command = [python, HERE / "measure.py", peer, workload, str(repetitions)]
                # A process a workload, so that the memory of one is not counted in the other.
                done = subprocess.run(
                    command, stdout=subprocess.PIPE, stderr=log, text=True, check=True, env={**os.environ, **QUIET}
                )
                yield from map(json.loads, done.stdout.splitlines())
    except (subprocess.CalledProcessError, OSError) as failure:
        lines = path.read_text().strip().splitlines() or [str(failure)]
        print(f"{peer}: left out: {lines[-1]} ({path})", file=sys.stderr)


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| workload | algorithm | durations | trainer | updates/s | × loop | spread |"
    yield "| --- | --- | --- | --- | ---: | ---: | --- |"
    for row in rows:
        low, high = row["spread"]
        cells = [row["workload"], row["algorithm"], row["durations"], row["trainer"]]
        yield f"| {' | '.join(cells)} | {row['updates_per_second']:,} | {row['ratio_to_loop']} | {low} … {high} |"


def main() -> None:
    """Print the rows and the table."""
    parser = argparse.ArgumentParser(description="Client updates a second of other simulators.")
    parser.add_argument("--only", choices=PEERS, help="only this one")
    parser.add_argument("--workload", choices=WORKLOADS, help="only this one")
    parser.add_argument("--quick", action="store_true", help="two repetitions, not five")
    arguments = parser.parse_args()
    workloads = (arguments.workload,) if arguments.workload else WORKLOADS
    found: list[dict[str, Any]] = []
    for peer in (arguments.only,) if arguments.only else PEERS:
        for row in rows_of(peer, workloads, repetitions=2 if arguments.quick else 5):
            print(json.dumps(row), flush=True)
            found.append(row)
    print()
    for line in table(sorted(found, key=lambda row: row["workload"])):
        print(line)


if __name__ == "__main__":
    main()
