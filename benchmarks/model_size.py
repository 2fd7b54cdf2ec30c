"""The time and memory of a version, for models of 10⁴ to 10⁸ parameters.

``make bench-simulation``, or ``python benchmarks/model_size.py [--quick]``. It prints a line of JSON for every row and
then a table. Each row is a process of its own: softmax regression with the number of inputs that gives that many
parameters, FedBuff with ten clients at work, each update one step on one example, ten updates a version, the trainer
that is chosen by default. A figure is the median of five versions. Beside each, the least cost of ten clients is
measured: ten times forward, backward and step of the same layer, and adding the results. The ratio is to that.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from offbeat.algorithms import FedBuff, LocalPlan
from offbeat.coordinator import Coordinator
from offbeat.population.availability import Always
from offbeat.population.devices.client_devices import ConstantLink, Devices
from offbeat.simulation.simulator import Simulation
from offbeat.simulation.totals import Stop
from offbeat.training import models
from offbeat.training.flat_model import FlatModel
from offbeat.training.trainers.choice import make_trainer
from offbeat.training.workload import Examples, Objective, Workload

CLIENTS = 10
VERSIONS = 5
SIZES = [10**4, 10**5, 10**6, 10**7, 10**8]


def world(model: FlatModel, inputs: torch.Tensor, labels: torch.Tensor) -> Simulation:
    """Return a simulation of ten clients with one example each."""
    plan = LocalPlan(steps=1, batch_size=1, lr=1e-3)
    fast = ConstantLink(np.full(CLIENTS, 1e12))
    devices = Devices(np.ones(CLIENTS), fast, fast, np.zeros(CLIENTS), Always(), "pause")
    shards = [np.array([client]) for client in range(CLIENTS)]
    workload = Workload(model, Objective(cross_entropy), Examples(inputs, labels), shards, seed=1)
    trainer = make_trainer("auto", workload, plan=plan)
    return Simulation(
        Coordinator(FedBuff(buffer_size=CLIENTS, concurrency=CLIENTS), model.vector, clients=CLIENTS, local=plan),
        devices,
        trainer,
        evaluate=lambda model: (0.0, {}),
        evaluate_every_seconds=1e9,
        stop=Stop(),
        seed=1,
    )


def seconds_a_version(simulation: Simulation) -> float:
    """Return how long the next version takes."""
    end = simulation.coordinator.algorithm.version + 1
    began = time.perf_counter()
    while simulation.coordinator.algorithm.version < end:
        simulation.step()
    _ = simulation.model
    return time.perf_counter() - began


def least_seconds(layer: nn.Linear, inputs: torch.Tensor, labels: torch.Tensor) -> float:
    """Return how long ten clients take, one after the other, with nothing around them."""
    weight, bias = layer.weight, layer.bias
    began = time.perf_counter()
    total = [torch.zeros_like(weight), torch.zeros_like(bias)]
    for client in range(CLIENTS):
        start = [weight.detach().clone(), bias.detach().clone()]
        layer.zero_grad()
        cross_entropy(layer(inputs[client : client + 1]), labels[client : client + 1]).backward()
        with torch.no_grad():
            for parameter, first, sum_ in zip((weight, bias), start, total, strict=True):
                assert parameter.grad is not None
                parameter -= 1e-3 * parameter.grad
                sum_ += first - parameter
                parameter.copy_(first)
    return time.perf_counter() - began


def measure(parameters: int) -> None:
    """Measure one row in this process and print it."""
    torch.set_num_threads(1)
    columns = parameters // 10 - 1
    random = torch.Generator().manual_seed(0)
    inputs = torch.randn(CLIENTS, columns, generator=random)
    labels = torch.randint(0, 10, (CLIENTS,), generator=random)
    model = FlatModel(models.softmax_regression((columns,), 10))
    simulation = world(model, inputs, labels)
    seconds_a_version(simulation)
    # Before the bare layer takes memory of its own.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    layer = nn.Linear(columns, 10)
    found: list[float] = []
    ratios: list[float] = []
    for _ in range(VERSIONS):
        least = least_seconds(layer, inputs, labels)
        found.append(seconds_a_version(simulation))
        ratios.append(found[-1] / least)
    row = {
        "workload": "model size",
        "trainer": simulation.trainer,
        "parameters": len(model.vector),
        "seconds_a_version": round(statistics.median(found), 5),
        "spread": [round(f(found), 5) for f in (min, max)],
        "ratio_to_least": round(statistics.median(ratios), 2),
        "model_mib": round(model.vector.nbytes / 2**20, 2),
        "peak_rss_mib": round(peak),
    }
    print(json.dumps(row), flush=True)


def main() -> None:
    """Print the rows and the table."""
    parser = argparse.ArgumentParser(description="Seconds a version, by the size of the model.")
    parser.add_argument("--quick", action="store_true", help="up to a million parameters")
    parser.add_argument("--row", type=int, help="only this many parameters")
    arguments = parser.parse_args()
    if arguments.row:
        measure(arguments.row)
        return
    found = []
    for size in SIZES[:3] if arguments.quick else SIZES:
        command = [sys.executable, __file__, "--row", str(size)]
        line = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
        print(line, flush=True)
        found.append(json.loads(line))
    print("\n| parameters | trainer | ms a version | spread | × least | model, MiB | memory, MiB |")
    print("| ---: | --- | ---: | --- | ---: | ---: | ---: |")
    for row in found:
        low, high = (f"{1000 * seconds:.2f}" for seconds in row["spread"])
        cells = [f"{row['parameters']:,}", row["trainer"], f"{1000 * row['seconds_a_version']:.2f}", f"{low} … {high}"]
        rest = [str(row[name]) for name in ("ratio_to_least", "model_mib", "peak_rss_mib")]
        print(f"| {' | '.join(cells + rest)} |")


if __name__ == "__main__":
    main()
