"""Measurement of one peer on one workload.

``python measure.py NAME WORKLOAD REPETITIONS``, in the peer's environment. It prints a line of JSON for every row.
``ratio_to_loop`` is to the plain loop in this process, whose rate is the mean of one measurement right before the
peer's and one right after it; figures are medians over the repetitions. ``peak_rss_mib`` is that of the process and its
children together over all rows of the workload. It is looked up once a second, and a page that processes share counts
in each.

The parts that a row's time leaves out are listed in the peer's module, ``on_NAME.py``.
"""

import importlib
import importlib.metadata
import json
import os
import resource
import statistics
import sys
import threading
from typing import Any

import psutil
from workloads import WORKLOADS, plain_loop


class PeakMemory(threading.Thread):
    """The most resident memory of this process and its children.

    It is looked up once a second.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._peak = 0

    def run(self) -> None:
        """Look until the process ends."""
        stop = threading.Event()
        while not stop.wait(1):
            self._peak = max(self._peak, resident_bytes())

    def mib(self) -> int:
        """Return the peak so far; that of this process alone is exact."""
        return round(max(self._peak / 2**20, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10))


def resident_bytes() -> int:
    """Return the resident memory of this process and its children."""
    total = 0
    process = psutil.Process()
    for each in [process, *process.children(recursive=True)]:
        try:
            total += each.memory_info().rss
        except psutil.NoSuchProcess:  # it ended in between
            continue
    return total


def measure(name: str, workload_name: str, repetitions: int) -> list[dict[str, Any]]:
    """Measure the peer's rows in turn, each between two plain loops.

    Return the results.
    """
    memory = PeakMemory()
    memory.start()
    workload = WORKLOADS[workload_name]
    peer = importlib.import_module(f"on_{name}")
    trainer = f"{peer.PACKAGE} {importlib.metadata.version(peer.PACKAGE)}"
    rows = peer.rows(workload)
    rates: dict[Any, list[float]] = {row: [] for row in rows}
    ratios: dict[Any, list[float]] = {row: [] for row in rows}
    for _ in range(repetitions):
        for row, work in rows.items():
            before = plain_loop(workload)
            rates[row].append(work())
            # A peer's processes may take a while to end, and the plain loop is to have the machine to itself.
            psutil.wait_procs(psutil.Process().children(recursive=True), timeout=30)
            ratios[row].append(rates[row][-1] / statistics.mean([before, plain_loop(workload)]))
    return [
        {
            "workload": workload.name,
            "algorithm": algorithm,
            "durations": durations,
            "trainer": trainer + with_what,
            "updates_per_second": round(statistics.median(rates[algorithm, durations, with_what]), 1),
            "ratio_to_loop": round(statistics.median(ratios[algorithm, durations, with_what]), 2),
            "spread": [round(f(ratios[algorithm, durations, with_what]), 2) for f in (min, max)],
            "peak_rss_mib": memory.mib(),
        }
        for algorithm, durations, with_what in rows
    ]


def main() -> None:
    """Print the rows."""
    name, workload, repetitions = sys.argv[1:]
    # Peers print as they please, also when they are imported, and so do their processes: that goes to stderr.
    with os.fdopen(os.dup(1), "w") as output:
        os.dup2(2, 1)
        for row in measure(name, workload, int(repetitions)):
            print(json.dumps(row), file=output, flush=True)


if __name__ == "__main__":
    main()
