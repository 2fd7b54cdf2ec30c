"""Measurement of one simulator on one workload.

``python measure.py NAME WORKLOAD [ALGORITHM …]``, in the simulator's environment, measures each row once and prints it
as a line of JSON. ``ratio_to_loop`` is to the plain loop in this process, whose rate is the mean of one measurement
right before the simulator's and one right after it. ``peak_rss_mib`` is that of the process and its children together
over all rows of the workload. It is looked up once a second, and a page that processes share counts in each.

The parts that a row's time leaves out are listed in the simulator's module, ``on_NAME.py``.
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


def measure(name: str, workload_name: str, algorithms: list[str]) -> list[dict[str, Any]]:
    """Measure the rows of these algorithms, or of all; return the results."""
    memory = PeakMemory()
    memory.start()
    workload = WORKLOADS[workload_name]
    simulator = importlib.import_module(f"on_{name}")
    trainer = f"{simulator.PACKAGE} {importlib.metadata.version(simulator.PACKAGE)}"
    found: list[dict[str, Any]] = []
    for (algorithm, durations, with_what), work in simulator.rows(workload).items():
        if algorithms and algorithm not in algorithms:
            continue
        before = plain_loop(workload)
        rate = work()
        # A simulator's processes may take a while to end, and the plain loop is to have the machine to itself.
        psutil.wait_procs(psutil.Process().children(recursive=True), timeout=30)
        found.append(
            {
                "workload": workload.name,
                "algorithm": algorithm,
                "durations": durations,
                "trainer": trainer + with_what,
                "updates_per_second": rate,
                "ratio_to_loop": rate / statistics.mean([before, plain_loop(workload)]),
            }
        )
    return [row | {"peak_rss_mib": memory.mib()} for row in found]


def main() -> None:
    """Print the rows."""
    name, workload, *algorithms = sys.argv[1:]
    # Simulators print as they please, also when they are imported, and so do their processes: that goes to stderr.
    with os.fdopen(os.dup(1), "w") as output:
        os.dup2(2, 1)
        for row in measure(name, workload, algorithms):
            print(json.dumps(row), file=output, flush=True)


if __name__ == "__main__":
    main()
