"""The client updates per second of the simulator, beside a plain loop.

``make bench-simulation``, or ``python benchmarks/simulation.py [--quick] [--workload W1]``. It prints a line of JSON
for every row and then a table; each figure is the median of five repetitions, and ratios are to the plain loop over
clients that was measured in between.

W1 is softmax regression of 784 numbers to ten classes on 1,000 clients of 60 examples, 10 local steps of batch 5. W2 is
the CNN of the built-in models on 32x32 colour images, 10 clients of 200 examples, 10 local steps of batch 20. Data are
random numbers: the speed of a step does not depend on them.

The rows of ``trainer``: ``loop`` is the least code that trains clients one after the other, without any simulation, and
``loop2`` two processes of it at once; ``offbeat-…`` are whole simulations, ``offbeat-processes`` with two processes;
``limit`` is the batched kernel for linear layers alone, a hundred clients at a time, without drawing minibatches.
"""

import argparse
import json
import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from workloads import W1, W2, Workload, plain_loop

from offbeat.algorithms import Algorithm, FedAsync, FedAvg, FedBuff, LocalPlan
from offbeat.coordinator import Coordinator
from offbeat.population.availability import Always
from offbeat.population.devices.client_devices import ConstantLink, Devices
from offbeat.simulation.simulator import Simulation
from offbeat.simulation.totals import Stop
from offbeat.training import workload as training
from offbeat.training.flat_model import FlatModel
from offbeat.training.minibatches import gather
from offbeat.training.trainers.batched.dense import dense_step
from offbeat.training.trainers.choice import make_trainer
from offbeat.training.trainers.loop import LoopBackend
from offbeat.training.trainers.trainer import Trainer

REPETITIONS = 5
_PROCESSES = 2


@dataclass(frozen=True, kw_only=True)
class Simulated(Workload):
    """A workload, and how its simulations are measured."""

    simulated: int
    """Updates of a simulation after the first round."""
    suits: str
    """The trainer that is measured with all durations; the others with uniform ones only."""
    others: tuple[str, ...]

    @property
    def plan(self) -> LocalPlan:
        """The plan of a visit."""
        return LocalPlan(steps=self.steps, batch_size=self.batch_size, lr=self.lr)

    @property
    def shards(self) -> list[np.ndarray]:
        """The numbers of the examples of each client."""
        return np.split(np.random.default_rng(0).permutation(self.clients * self.examples), self.clients)


WORKLOADS = {
    "W1": Simulated(**vars(W1), simulated=2000, suits="vmap", others=("loop", "processes")),
    # vmap refuses convolutions whose last bits depend on who is trained with whom.
    "W2": Simulated(**vars(W2), simulated=30, suits="processes", others=("loop",)),
}


def two_loops(pool: ProcessPoolExecutor, workload: Simulated) -> float:
    """Return updates a second of two processes together."""
    return sum(pool.map(plain_loop, [workload] * 2))


def training_workload(workload: Simulated) -> training.Workload:
    """Return the workload with the data in which clients train."""
    return training.Workload(
        FlatModel(workload.make()),
        training.Objective(cross_entropy),
        training.Examples(*workload.data()),
        workload.shards,
        seed=1,
    )


def trainer_named(name: Any, workload: Simulated) -> Trainer:
    """Return one of Offbeat's trainers."""
    workers = _PROCESSES if name == "processes" else 1
    return make_trainer(name, training_workload(workload), plan=workload.plan, workers=workers)


def algorithms_of(workload: Simulated) -> dict[str, Callable[[], Algorithm]]:
    """Return what makes each algorithm that is measured."""
    concurrency = workload.cohort
    return {
        "fedavg": lambda: FedAvg(cohort=workload.cohort),
        "fedbuff": lambda: FedBuff(buffer_size=10, concurrency=concurrency),
        "fedasync": lambda: FedAsync(concurrency=concurrency),
    }


def simulation(workload: Simulated, algorithm: Algorithm, durations: str, trainer: Trainer) -> float:
    """Return updates per second of a whole simulation.

    Its construction and its first round are left out.
    """
    updates = workload.looped if isinstance(trainer.backend, LoopBackend) else workload.simulated
    random = np.random.default_rng(1)
    step_seconds = {
        "constant": lambda n: np.ones(n),
        "uniform": lambda n: random.uniform(0.5, 1.5, n),
        "lognormal": lambda n: random.lognormal(0.0, 0.5, n),
        "exponential": lambda n: random.exponential(1.0, n) + 1e-3,
    }[durations](workload.clients)
    fast = ConstantLink(np.full(workload.clients, 1e12))
    devices = Devices(
        step_seconds=step_seconds,
        down=fast,
        up=fast,
        loss_probability=np.zeros(workload.clients),
        availability=Always(),
        when_away="pause",
    )
    world = Simulation(
        Coordinator(algorithm, trainer.workload.model.vector, clients=workload.clients, local=workload.plan),
        devices,
        trainer,
        evaluate=lambda model: (0.0, {}),
        evaluate_every_seconds=1e9,
        stop=Stop(updates=workload.cohort + updates),
        seed=1,
    )
    statistics_ = world.coordinator.statistics
    # The first round, in which processes start, and its training, which waits until the model is read.
    while statistics_.counted < workload.cohort:
        world.step()
    _ = world.model
    counted, began = statistics_.counted, time.perf_counter()
    while not world.finished:
        world.step()
    _ = world.model
    rate = (statistics_.counted - counted) / (time.perf_counter() - began)
    world.close()
    return rate


def kernel(workload: Simulated) -> float:
    """Return updates a second of the kernel for linear layers alone."""
    inputs, labels = workload.data()
    clients, plan = 100, workload.plan
    parameters = [torch.zeros(clients, *parameter.shape) for parameter in workload.make().parameters()]
    chosen = torch.randint(0, len(inputs), (clients, plan.steps, plan.batch_size))
    rates = torch.full((clients,), 0.1)
    rounds = max(1, workload.simulated // clients)
    began = time.perf_counter()
    for step in range(rounds * plan.steps):
        batch = chosen[:, step % plan.steps]
        dense_step(parameters, gather(inputs, batch), gather(labels, batch), rates)
    return rounds * clients / (time.perf_counter() - began)


def measure(workload: Simulated, rows: dict[tuple[str, str, str], Callable[[], float]]) -> list[dict[str, Any]]:
    """Measure the rows in turn, each time after the plain loop.

    Return the results.
    """
    rates: dict[tuple[str, str, str], list[float]] = {row: [] for row in rows}
    ratios: dict[tuple[str, str, str], list[float]] = {row: [] for row in rows}
    peaks: dict[tuple[str, str, str], float] = {}
    # The largest memory so far is a row's own as long as those that take the most come last.
    rows = dict(sorted(rows.items(), key=lambda row: row[0][2] == "offbeat-processes"))
    for _ in range(REPETITIONS):
        for row, work in rows.items():
            loop = plain_loop(workload)
            rates[row].append(loop if row[2] == "loop" else work())
            ratios[row].append(rates[row][-1] / loop)
            peaks.setdefault(row, _peak_mib(row[2]))
    return [
        {
            "workload": workload.name,
            "algorithm": algorithm,
            "durations": durations,
            "trainer": trainer,
            "updates_per_second": round(statistics.median(rates[algorithm, durations, trainer]), 1),
            "ratio_to_loop": round(statistics.median(ratios[algorithm, durations, trainer]), 2),
            "spread": [round(f(ratios[algorithm, durations, trainer]), 2) for f in (min, max)],
            "peak_rss_mib": round(peaks[algorithm, durations, trainer]),
        }
        for algorithm, durations, trainer in rows
    ]


def _peak_mib(trainer: str) -> float:
    own, child = (resource.getrusage(who).ru_maxrss / 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own + (_PROCESSES * child if trainer == "offbeat-processes" else 0)


def rows_of(
    workload: Simulated, pool: ProcessPoolExecutor, quick: bool
) -> dict[tuple[str, str, str], Callable[[], float]]:
    """Return what is measured, by (algorithm, durations, trainer)."""
    rows: dict[tuple[str, str, str], Callable[[], float]] = {
        ("-", "-", "loop"): lambda: 0.0,
        ("-", "-", "loop2"): lambda: two_loops(pool, workload),
    }
    if workload.name == "W1":
        rows["-", "-", "limit"] = lambda: kernel(workload)
    # Convolutions are trained one client at a time, so how many can be trained together matters less.
    all_durations = (
        ("uniform", "exponential") if workload.name == "W2" else ("constant", "uniform", "lognormal", "exponential")
    )
    all_durations = ("uniform",) if quick else all_durations
    for algorithm, make in algorithms_of(workload).items():
        for durations in all_durations:
            for trainer in (workload.suits, *workload.others) if durations == "uniform" else (workload.suits,):
                rows[algorithm, durations, f"offbeat-{trainer}"] = (
                    lambda make=make, durations=durations, trainer=trainer: simulation(
                        workload, make(), durations, trainer_named(trainer, workload)
                    )
                )
    return rows


def main() -> None:
    """Print the rows and the table."""
    parser = argparse.ArgumentParser(description="Client updates a second.")
    parser.add_argument("--quick", action="store_true", help="only uniform durations")
    parser.add_argument("--workload", choices=list(WORKLOADS), help="only this one")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found: list[dict[str, Any]] = []
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        for workload in WORKLOADS.values():
            if arguments.workload in (None, workload.name):
                for row in measure(workload, rows_of(workload, pool, arguments.quick)):
                    print(json.dumps(row), flush=True)
                    found.append(row)
    print("\n| workload | algorithm | durations | trainer | updates/s | × loop | spread |")
    print("| --- | --- | --- | --- | ---: | ---: | --- |")
    for row in found:
        low, high = row["spread"]
        cells = [row["workload"], row["algorithm"], row["durations"], row["trainer"]]
        print(f"| {' | '.join(cells)} | {row['updates_per_second']:,} | {row['ratio_to_loop']} | {low} … {high} |")


if __name__ == "__main__":
    main()
