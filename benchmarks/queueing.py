"""The capacity of a service by its unit costs, by arithmetic and by simulation.

``python benchmarks/queueing.py`` prints two tables: what numbers of clients ask of a service for some sizes of models,
with the part that is full first; and what each setup can do, with the simulated utilisation of that part and how long
uploads take. With ``--check`` it measures updates of 31 kB on this machine, as ``service.py`` does, beside the
simulation of this machine.
"""

import argparse
import hashlib
import math
import os
import random
import statistics
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from itertools import product
from pathlib import Path

from queue_world import SMALL_MB, Costs, Service, World
from service_load import Offbeat, body_of, together

SMALL = 7_850  # parameters of a model whose updates have 31 kB
REPETITIONS = 5
SIZES = (1, 40, 400)  # MB
SETUPS = {
    "one process": {"k": 10},
    "7 fronts on its machine": {"k": 100, "fronts": 7},
    "8 machines of 7 fronts": {"k": 100, "machines": 8, "fronts": 7},
}


def predicted(service: Service, costs: Costs) -> dict[str, float]:
    """Return the utilisation of each queue by arithmetic; above 1 it is overloaded."""
    visits, size, is_small = service.visits, service.size, service.size <= SMALL_MB
    saved, saved_small = ((0.0, 0.0),) * 2 if service.fronts else (costs.connection, costs.small_connection)
    beats, check_ins = visits * service.beats, service.check_ins + visits * (2 if is_small else 3)
    leader = check_ins * (costs.check_in[0] - saved[0]) + beats * (costs.beat[0] - saved[0])
    leader += visits * (
        costs.decide - saved_small[0] + costs.any_version / service.k + (costs.add + costs.version / service.k) * size
    )
    front = check_ins * (costs.check_in[1] - saved[1]) + beats * (costs.beat[1] - saved[1])
    front += visits * (costs.small - saved_small[1])
    row = 2 * costs.row + (costs.row_mb * size if is_small else 0)
    # After a commit the next begins at once if there are rows, else with the next update.
    pause = costs.commit + costs.sync
    pause += row * max(1.0, visits * pause)
    commits = 1 / (pause + math.exp(-visits * pause) / visits)
    found = {"leader": leader, "log": commits * costs.commit + visits * row}
    places = service.places
    if service.fronts:
        found["fronts"] = front / (places * service.fronts)
    else:
        found["leader"] += front
    found["bodies"] = visits * size * (costs.down + (0 if is_small else costs.up)) / (places * service.cores)
    found["network down"] = visits * size / (places * service.network)
    if not is_small:
        found["network up"] = visits * size / (places * service.network)
        found["disk"] = visits * size / (places * service.disk)
        if service.machines:
            found["leader's network"] = visits * size / service.network
    return found


def capacity(service: Service, costs: Costs) -> tuple[str, float]:
    """Return the queue that is full first, and at how many times the load."""
    low, high = 0.0, 1.0
    while max(predicted(service.times(high), costs).values()) < 1:
        low, high = high, 2 * high
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if max(predicted(service.times(middle), costs).values()) < 1 else (low, middle)
    used = predicted(service.times(low), costs)
    return max(used, key=lambda name: used[name]), low


def show_demand(costs: Costs) -> None:
    """Print what clients ask of each setup, and which part of it is full first."""
    print("| clients | MB | visits/s | requests/s | GB/s each way | full first | utilisation |")
    for clients, (name, setup) in zip((1e3, 1e5, 1e7), SETUPS.items(), strict=True):
        for size in SIZES:
            service = Service(clients=clients, size=size, **setup)
            used = predicted(service, costs)
            first = max(used, key=lambda part: used[part])
            numbers = f"{service.visits:,.2f} | {service.requests:,.0f} | {service.visits * size / 1000:,.3g}"
            print(f"| {clients:,.0f}, {name} | {size} | {numbers} | {first} | {used[first]:,.2f} |", flush=True)


def show_capacity(costs: Costs, arrivals: int) -> None:
    """Print what each setup can do, without clients that wait."""
    print("| setup | MB | full first | visits/s | simulated at 0.5, 0.8, 0.95 | answered at 1.3 | seconds p50, p99 |")
    for (name, setup), size in product(SETUPS.items(), SIZES):
        service = Service(clients=1000, size=size, check_in_every=math.inf, **setup)
        first, times = capacity(service, costs)
        used: list[str] = []
        waits: list[str] = []
        for load in (0.5, 0.8, 0.95):
            world = World(service.times(load * times), costs)
            used.append(f"{world.used(world.run(arrivals))[first]:.2f}")
            answered = sorted(world.answered)
            waits.append("–".join(f"{answered[int(len(answered) * share)]:,.2g}" for share in (0.5, 0.99)))
        world = World(service.times(1.3 * times), costs)
        seconds = world.run(arrivals)
        rate = len(world.answered) / seconds / (service.visits * times)
        cells = f"{first} | {service.visits * times:,.3g} | {', '.join(used)} | {rate:.2f} | {', '.join(waits)}"
        print(f"| {name} | {size} | {cells} |", flush=True)


def closed_rate(service: Service, costs: Costs, clients: int, client_seconds: float, seconds: float) -> float:
    """Return the updates of 31 kB a second of clients on the same machine."""
    world = World(service, costs)
    process = world.home.process("clients")

    def again() -> None:
        process.work(client_seconds, lambda: world.upload(again))

    for _ in range(clients):
        again()
    world.clock.run(seconds / 5)
    before = len(world.answered)
    world.clock.run(seconds)
    return (len(world.answered) - before) / (seconds * 4 / 5)


def check(costs: Costs) -> None:
    """Print the rates of updates of 31 kB on this machine, measured and simulated."""
    clients, cores = 64, len(os.sched_getaffinity(0))
    body = body_of(SMALL)
    digest = {"sha256": hashlib.sha256(body).hexdigest()}
    found: dict[int, list[tuple[float, float, float]]] = {0: [], 2: []}
    with tempfile.TemporaryDirectory(dir="build", ignore_cleanup_errors=True) as name, ExitStack() as stack:
        works = {}
        for fronts in found:
            server = Offbeat(Path(name).resolve(), SMALL, clients, tls=False, fronts=fronts)
            stack.callback(server.stop)
            works[fronts] = server, [partial(server.enrol().update, body, digest) for _ in range(clients)]
            together(*works[fronts], 2)
        for _, fronts in product(range(REPETITIONS), found):
            busy, began = _busy_seconds(), time.perf_counter()
            load = together(*works[fronts], 30)
            seconds = time.perf_counter() - began
            others = (_busy_seconds() - busy) / seconds - load.client_cores - load.server_cores
            found[fronts].append((load.per_second, load.client_cores / load.per_second, 1 - max(0.0, others) / cores))
    for fronts, rows in found.items():
        service = Service(clients=0, size=body.nbytes / 1e6, k=10, fronts=fronts, cores=cores)
        rate, client, left = (statistics.median(column) for column in zip(*rows, strict=True))
        simulated = closed_rate(service, costs, clients, client, 3.0)
        ratios = [simulated * share / measured for measured, _, share in rows]
        ratio, low, high = statistics.median(ratios), min(ratios), max(ratios)
        print(f"{fronts or 'no'} fronts: measured {rate:,.0f}/s, simulated {simulated:,.0f}/s if nothing else runs;")
        print(f"  {left:.0%} was left by other programs: simulated / measured {ratio:.2f} ({low:.2f} … {high:.2f})")


def _busy_seconds() -> float:
    """Return the processor time of all programs."""
    user, nice, system, _, _, irq, soft, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Print the tables, or the check."""
    parser = argparse.ArgumentParser(description="The queues of a service, simulated.")
    parser.add_argument("--check", action="store_true", help="measure this machine, too")
    arguments = parser.parse_args()
    random.seed(1)
    costs = Costs()
    if arguments.check:
        check(costs)
    else:
        show_demand(costs)
        show_capacity(costs, 20_000)


if __name__ == "__main__":
    main()
