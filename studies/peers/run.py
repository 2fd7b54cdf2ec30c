"""The client updates per second of other simulators, beside Offbeat's.

They are pfl-research, Flower, fluke, FLGo, APPFL and NVFlare. ``make bench-peers``, or ``python studies/peers/run.py
[--only NAME] [--workload W1] [--quick]``. The workloads are those of ``benchmarks/simulation.py``, and so are the lines
of JSON and the table that it prints. A simulator is installed in an environment of its own, ``build/peers/NAME``, when
that is missing or the requirements have changed. The output of pip and of the simulator goes to
``build/peers/NAME.log``. A simulator that cannot be installed or fails is left out with a line on stderr.

Each of five repetitions (``--quick``: of two) measures the simulator and right after it Offbeat, each in a process of
its own and relative to the plain loop in that process (``measure.py``). ``times_as_fast`` is the median of the ratios
of one to the other. ``outcome.py`` compares models.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

HERE = Path(__file__).resolve().parent
BENCHMARKS = HERE.parents[1] / "benchmarks"
BUILD = HERE.parents[1] / "build" / "peers"
PEERS = ("pfl", "flwr", "fluke", "flgo", "appfl", "nvflare")
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
    """Yield the simulator's rows; if it fails, say why and leave the rest out."""
    BUILD.mkdir(parents=True, exist_ok=True)
    path = BUILD / f"{peer}.log"
    try:
        with path.open("w") as log:
            python = installed(peer, log)
            for workload in workloads:
                theirs: list[list[dict[str, Any]]] = []
                ours: list[list[dict[str, Any]]] = []
                for _ in range(repetitions):
                    theirs.append(measured(python, peer, workload, [], log))
                    algorithms = sorted({row["algorithm"] for row in theirs[-1]})
                    ours.append(measured(Path(sys.executable), "offbeat", workload, algorithms, log))
                for repeated in zip(*theirs, strict=True):
                    name = repeated[0]["algorithm"]
                    own = [next(row for row in rows if row["algorithm"] == name) for rows in ours]
                    yield _summary(repeated, own)
    except (subprocess.CalledProcessError, OSError) as failure:
        lines = path.read_text().strip().splitlines() or [str(failure)]
        print(f"{peer}: left out: {lines[-1]} ({path})", file=sys.stderr)


def measured(python: Path, name: str, workload: str, algorithms: list[str], log: IO[str]) -> list[dict[str, Any]]:
    """Return the rows of one repetition.

    A process a workload, so that the memory of one is not counted in the other.
    """
    command = [python, HERE / "measure.py", name, workload, *algorithms]
    # Offbeat's module imports benchmarks/simulation.py; NVFlare's jobs import workloads.py.
    paths = [str(BENCHMARKS), os.environ.get("PYTHONPATH", "")] if name == "offbeat" else [str(HERE)]
    variables = {**os.environ, **QUIET, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, text=True, check=True, env=variables)
    return [json.loads(line) for line in done.stdout.splitlines()]


def _summary(theirs: tuple[dict[str, Any], ...], ours: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the medians over the repetitions of a row."""
    ratios = [row["ratio_to_loop"] for row in theirs]
    times = [own["ratio_to_loop"] / row["ratio_to_loop"] for own, row in zip(ours, theirs, strict=True)]
    return theirs[0] | {
        "updates_per_second": round(statistics.median(row["updates_per_second"] for row in theirs), 1),
        "ratio_to_loop": round(statistics.median(ratios), 2),
        "spread": [round(min(ratios), 2), round(max(ratios), 2)],
        "peak_rss_mib": max(row["peak_rss_mib"] for row in theirs),
        "ours_to_loop": round(statistics.median(own["ratio_to_loop"] for own in ours), 2),
        "times_as_fast": round(statistics.median(times), 1),
        "times_spread": [round(min(times), 1), round(max(times), 1)],
    }


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| workload | algorithm | durations | trainer | updates/s | × loop | spread | Offbeat is times as fast |"
    yield "| --- | --- | --- | --- | ---: | ---: | --- | --- |"
    for row in rows:
        low, high = row["spread"]
        cells = [row["workload"], row["algorithm"], row["durations"], row["trainer"]]
        cells += [f"{row['updates_per_second']:,}", str(row["ratio_to_loop"]), f"{low} … {high}"]
        yield f"| {' | '.join(cells)} | {row['times_as_fast']} ({' … '.join(map(str, row['times_spread']))}) |"


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
