"""Pools of processes that train clients: Offbeat's own, loky's and Ray's.

``python benchmarks/process_pools.py [--rounds 5] [--only cold|simulation|jobs]``, with ``loky`` and ``ray`` installed.
It prints a line of JSON for every row; each figure is the median over interleaved rounds. Every pool has two workers of
one thread.

``cold`` is a fresh Python program in which torch and Offbeat are imported, up to a pool's first result and up to the
result of a short run of 20 jobs of W2. ``simulation`` is W2 of ``simulation.py`` with FedBuff, in updates per second,
beside the plain loop that ran just before. ``jobs`` are jobs of W2's model of some 50 ms and of the length of W2's, in
jobs per second, beside two processes that each train half of them without a pool.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from typing import Any

import torch
from loky_trainer import LokyTrainer
from simulation import WORKLOADS, Simulated, simulation, training_workload
from workloads import plain_loop

from offbeat.algorithms import FedBuff
from offbeat.training.flat_model import FlatModel
from offbeat.training.trainers.backend import Job
from offbeat.training.trainers.distributed.process_pool import ProcessPool
from offbeat.training.trainers.loop import LoopBackend
from offbeat.training.trainers.trainer import Trainer
from offbeat.training.worker_process import keep_freed_memory
from offbeat.training.workload import Workload

WORKERS = 2
SHORT_RUN = 20  # jobs
JOBS = 24


def _ray(workload: Workload) -> Trainer:
    from offbeat.training.trainers.distributed.ray_pool import RayPool

    return Trainer(RayPool(workload, workers=WORKERS))


POOLS: dict[str, Callable[[Workload], Any]] = {
    "processes": lambda workload: Trainer(ProcessPool(workload, workers=WORKERS)),
    "loky": partial(LokyTrainer, workers=WORKERS),
    "ray": _ray,
}


def jobs_of(workload: Simulated, number: int, steps: int) -> list[Job]:
    """Return jobs of the workload's clients; each visit starts from another model."""
    model = FlatModel(workload.make())
    plan = replace(workload.plan, steps=steps)
    starts = [model.vector.clone() for _ in range(-(-number // workload.clients))]
    return [
        Job(index % workload.clients, index // workload.clients, 0, starts[index // workload.clients], plan, "delta")
        for index in range(number)
    ]


def train(trainer: Trainer, jobs: Sequence[Job]) -> None:
    """Train jobs, announced all at once and collected in order."""
    for job in jobs:
        trainer.submit(job)
    for job in jobs:
        trainer.collect([job])


def cold(pool: str) -> dict[str, float]:
    """Return the seconds to the first result, and to the end of a short run."""
    workload = WORKLOADS["W2"]
    training, jobs = training_workload(workload), jobs_of(workload, SHORT_RUN, workload.steps)
    began = time.perf_counter()
    with closing(POOLS[pool](training)) as trainer:
        for job in jobs:
            trainer.submit(job)
        trainer.collect(jobs[:1])
        first = time.perf_counter() - began
        for job in jobs[1:]:
            trainer.collect([job])
        return {"first_result": first, "short_run": time.perf_counter() - began}


def fresh(pool: str) -> dict[str, float]:
    """Return ``cold`` in a fresh program."""
    command = [sys.executable, __file__, "--cold", pool]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


_loop: LoopBackend | None = None  # of a process of ``two_processes``


def _half(jobs: int, steps: int, part: int) -> None:
    global _loop
    workload = WORKLOADS["W2"]
    if _loop is None:
        torch.set_num_threads(1)
        keep_freed_memory()  # as the pools' processes do
        _loop = LoopBackend(training_workload(workload))
    _loop.train(jobs_of(workload, jobs, steps)[part::WORKERS])


def job_rates(rounds: int) -> None:
    """Print the jobs per second of each pool beside two processes without one."""
    workload = WORKLOADS["W2"]
    training = training_workload(workload)
    loop = LoopBackend(training)
    with ExitStack() as stack:
        spawn = get_context("spawn")
        warm = stack.enter_context(ProcessPoolExecutor(WORKERS, mp_context=spawn))
        trainers = {name: stack.enter_context(closing(make(training))) for name, make in POOLS.items()}
        for trainer in trainers.values():
            # Both workers are up once they have trained more jobs than one of them holds.
            train(trainer, jobs_of(workload, 8 * WORKERS, 1))
        for steps in (3, workload.steps):
            jobs = jobs_of(workload, JOBS, steps)
            list(warm.map(partial(_half, WORKERS, steps), range(WORKERS)))
            shares: dict[str, list[float]] = {name: [] for name in trainers}
            milliseconds: list[float] = []
            for _ in range(rounds):
                milliseconds.append(1000 * _seconds(partial(loop.train, jobs[:5])) / 5)
                for name, trainer in trainers.items():
                    two = _seconds(lambda steps=steps: list(warm.map(partial(_half, JOBS, steps), range(WORKERS))))
                    shares[name].append(two / _seconds(partial(train, trainer, jobs)))
            for name, found in shares.items():
                row = {"jobs": name, "steps": steps, "milliseconds": round(statistics.median(milliseconds), 1)}
                _print(row, share_of_two_processes=found)


def simulation_rates(rounds: int) -> None:
    """Print the updates per second of simulations beside the plain loop."""
    workload = WORKLOADS["W2"]
    ratios: dict[str, list[float]] = {name: [] for name in POOLS}
    shares: dict[str, list[float]] = {name: [] for name in POOLS}
    for _ in range(rounds):
        rates: dict[str, float] = {}
        for name, make in POOLS.items():
            loop = plain_loop(workload)
            algorithm = FedBuff(buffer_size=10, concurrency=workload.cohort)
            rates[name] = simulation(workload, algorithm, "uniform", make(training_workload(workload)))
            ratios[name].append(rates[name] / loop)
        for name, rate in rates.items():
            shares[name].append(rate / rates["processes"])
    for name in POOLS:
        _print({"simulation": name}, times_loop=ratios[name], share_of_processes=shares[name])


def cold_starts(rounds: int) -> None:
    """Print the seconds of each pool from a fresh program."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in POOLS}
    for _ in range(rounds):
        for name, rows in found.items():
            rows.append(fresh(name))
    for name, rows in found.items():
        for key in rows[0]:
            seconds = [row[key] for row in rows]
            ratios = [row[key] / own[key] for row, own in zip(rows, found["processes"], strict=True)]
            _print({"cold": name, "until": key}, seconds=seconds, times_processes=ratios)


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _print(row: dict[str, Any], **values: Sequence[float]) -> None:
    for name, found in values.items():
        row |= {name: round(statistics.median(found), 2), f"{name}_spread": [round(f(found), 2) for f in (min, max)]}
    print(json.dumps(row), flush=True)


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(description="Pools of processes that train clients.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=["cold", "simulation", "jobs"])
    parser.add_argument("--pools", nargs="+", choices=list(POOLS), default=list(POOLS))
    parser.add_argument("--cold", choices=list(POOLS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.cold:
        print(json.dumps(cold(arguments.cold)))
        return
    for name in set(POOLS) - set(arguments.pools):
        del POOLS[name]
    if arguments.only in (None, "cold"):
        cold_starts(arguments.rounds)
    if arguments.only in (None, "simulation"):
        simulation_rates(arguments.rounds)
    if arguments.only in (None, "jobs"):
        job_rates(arguments.rounds)


if __name__ == "__main__":
    main()
