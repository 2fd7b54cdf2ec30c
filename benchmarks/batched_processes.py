"""The gain of two processes of the batched trainer over one, in whole simulations.

``python benchmarks/batched_processes.py``. W1 is that of ``benchmarks/simulation.py``; ``perceptron`` is W1 with a
hidden layer of 64 and minibatches of 20. Each figure is the median of five pairs that ran one after the other, with the
lowest and the highest; start-up and the first round are left out.
"""

import dataclasses
import statistics
from collections.abc import Callable
from functools import partial

import torch
from simulation import REPETITIONS, WORKLOADS, simulation, trainer_named
from torch import nn

from offbeat.algorithms import Algorithm, FedAvg, FedBuff
from offbeat.training.trainers.batched.vmap import VmapBackend
from offbeat.training.trainers.distributed.process_pool import ProcessPool
from offbeat.training.trainers.trainer import Trainer


def perceptron() -> nn.Module:
    """Return a network with one hidden layer."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))


W1 = dataclasses.replace(WORKLOADS["W1"], simulated=6000)
CASES = {"W1": W1, "perceptron": dataclasses.replace(W1, make=perceptron, batch_size=20, simulated=1500)}
ALGORITHMS: dict[str, Callable[[int], Algorithm]] = {
    "fedavg": lambda cohort: FedAvg(cohort=cohort),
    "fedbuff": lambda cohort: FedBuff(buffer_size=10, concurrency=cohort),
}


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    print("| workload | algorithm | one process, updates/s | two / one | spread |")
    print("| --- | --- | ---: | ---: | --- |")
    for name, workload in CASES.items():
        for algorithm, make in ALGORITHMS.items():
            ones: list[float] = []
            ratios: list[float] = []
            for _ in range(REPETITIONS):
                one = trainer_named("vmap", workload)
                of_worker = partial(VmapBackend, batch_limit=one.batch_limit)
                ones.append(simulation(workload, make(workload.cohort), "uniform", one))
                two = Trainer(ProcessPool(one.workload, workers=2, make=of_worker))
                ratios.append(simulation(workload, make(workload.cohort), "uniform", two) / ones[-1])
            spread = f"{min(ratios):.2f} … {max(ratios):.2f}"
            figures = f"{statistics.median(ones):,.0f} | {statistics.median(ratios):.2f}"
            print(f"| {name} | {algorithm} | {figures} | {spread} |", flush=True)


if __name__ == "__main__":
    main()
