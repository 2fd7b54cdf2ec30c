"""The visits per second of the event loop, with 100 to a million clients.

Training takes no time. ``make bench-simulation``, or ``python benchmarks/event_loop.py [--quick]``. It prints a line of
JSON for every row and then a table. Each row is a process of its own: FedBuff (K = 10) with the real coordinator and
clients of uniform speeds, a model of ten numbers, and a trainer that returns zeros. A figure is the median of five
stretches of the run after every client has worked once. Beside each stretch a bare heap of as many events is measured,
a push and a pop at a time; the ratio is the number of these that fit into one visit.
"""

import argparse
import heapq
import json
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

import numpy as np
import torch
from torch.nn import Linear
from torch.nn.functional import mse_loss

from offbeat.algorithms import FedBuff, LocalPlan
from offbeat.coordinator import Coordinator
from offbeat.population.availability import Always
from offbeat.population.devices.client_devices import ConstantLink, Devices
from offbeat.process_memory import rare_garbage_collection
from offbeat.simulation.simulator import Simulation
from offbeat.simulation.totals import Stop
from offbeat.training.flat_model import FlatModel
from offbeat.training.trainers.backend import Backend, Job, Result
from offbeat.training.trainers.trainer import Trainer
from offbeat.training.workload import Examples, Objective, Workload

STRETCHES = 5
UPDATES = 40_000  # a stretch
ROWS = [(10**2, 10**2), (10**4, 10**2), (10**6, 10**2), (10**4, 10**4), (10**5, 10**4), (10**6, 10**4)]


class NullBackend(Backend):
    """Returns zeros at once, the same for all."""

    name = "null"
    batch_limit = 128

    def __init__(self, clients: int) -> None:
        self._zeros = torch.zeros(10)
        examples = Examples(self._zeros, self._zeros)
        self.workload = Workload(FlatModel(Linear(9, 1)), Objective(mse_loss), examples, [np.arange(60)] * clients, 1)

    def train(self, jobs: Sequence[Job]) -> list[Result]:
        """Return zeros for each."""
        return [Result(self._zeros, 0.0) for _ in jobs]


def world(clients: int, in_flight: int) -> Simulation:
    """Return a simulation in which nothing is learnt."""
    fast = ConstantLink(np.full(clients, 1e6))
    devices = Devices(
        step_seconds=np.random.default_rng(1).uniform(0.5, 1.5, clients),
        down=fast,
        up=fast,
        loss_probability=np.zeros(clients),
        availability=Always(),
        when_away="pause",
    )
    return Simulation(
        Coordinator(
            FedBuff(buffer_size=10, concurrency=in_flight),
            torch.zeros(10),
            clients=clients,
            local=LocalPlan(steps=10, batch_size=5, lr=0.1),
        ),
        devices,
        Trainer(NullBackend(clients)),
        evaluate=lambda model: (0.0, {}),
        evaluate_every_seconds=1e9,
        stop=Stop(),
        seed=1,
    )


def advance(simulation: Simulation, updates: int) -> None:
    """Go on until so many more updates have counted."""
    statistics_ = simulation.coordinator.statistics
    end = statistics_.counted + updates
    while statistics_.counted < end:
        simulation.step()
        if len(simulation.ended) > 1000:
            simulation.ended.clear()


def heap_operations(entries: int) -> float:
    """Return the replacements per second in a bare heap.

    In a replacement an entry is taken from the heap and another put in.
    """
    heap = [(random.random(), number) for number in range(entries)]
    heapq.heapify(heap)
    began = time.perf_counter()
    for number in range(50_000):
        seconds, _ = heapq.heappop(heap)
        heapq.heappush(heap, (seconds + random.random(), number))
    return 50_000 / (time.perf_counter() - began)


@rare_garbage_collection()  # as runs have
def measure(clients: int, in_flight: int) -> None:
    """Measure one row in this process and print it."""
    torch.set_num_threads(1)
    began = time.perf_counter()
    simulation = world(clients, in_flight)
    simulation.step()
    start = time.perf_counter() - began
    advance(simulation, 2 * in_flight)
    rates: list[float] = []
    ratios: list[float] = []
    for _ in range(STRETCHES):
        began = time.perf_counter()
        advance(simulation, UPDATES)
        rates.append(UPDATES / (time.perf_counter() - began))
        ratios.append(heap_operations(in_flight) / rates[-1])
    row = {
        "workload": "events",
        "algorithm": "fedbuff",
        "durations": "uniform",
        "trainer": "null",
        "clients": clients,
        "in_flight": in_flight,
        "updates_per_second": round(statistics.median(rates)),
        "spread": [round(min(rates)), round(max(rates))],
        "heap_operations_an_update": round(statistics.median(ratios), 1),
        "start_seconds": round(start, 2),
        "peak_rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }
    print(json.dumps(row), flush=True)


def main() -> None:
    """Print the rows and the table."""
    parser = argparse.ArgumentParser(description="Visits a second, without training.")
    parser.add_argument("--quick", action="store_true", help="only a hundred clients and a million")
    parser.add_argument("--row", type=int, nargs=2, help="only this number of clients, and in flight")
    arguments = parser.parse_args()
    if arguments.row:
        measure(*arguments.row)
        return
    found = []
    for row in [ROWS[0], ROWS[-1]] if arguments.quick else ROWS:
        command = [sys.executable, __file__, "--row", *map(str, row)]
        line = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
        print(line, flush=True)
        found.append(json.loads(line))
    print("\n| clients | in flight | visits/s | spread | heap operations a visit | start, s | memory, MiB |")
    print("| ---: | ---: | ---: | --- | ---: | ---: | ---: |")
    for row in found:
        low, high = row["spread"]
        cells = [f"{row[name]:,}" for name in ("clients", "in_flight", "updates_per_second")]
        rest = [str(row[name]) for name in ("heap_operations_an_update", "start_seconds", "peak_rss_mib")]
        print(f"| {' | '.join(cells)} | {low:,} … {high:,} | {' | '.join(rest)} |")


if __name__ == "__main__":
    main()
