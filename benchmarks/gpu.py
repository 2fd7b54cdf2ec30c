"""Client updates per second on a GPU, beside a plain loop on the same GPU.

``make bench-gpu``, or ``python benchmarks/gpu.py [--device cuda] [--precision float32] [--workload W1] [--quick]
[--output FILE.json]``. ``--device cpu --quick`` tries the script out where there is no GPU.

W1 is softmax regression of 784 numbers, W2 the built-in CNN and W3 ResNet-18 with GroupNorm on 32x32 colour images,
W4 an encoder of MiniLM's shape with LoRA adapters of rank 8 on 50 tokens; weights and data are random numbers. A row
is the median of five repetitions, each after the plain loop. ``offbeat`` is a whole simulation of FedBuff with the
trainer that ``auto`` takes, ``pfl`` FedAvg by pfl-research where that is installed, the other rows are trainers alone.
``memory`` is the most that the trainer allocated on the GPU, beside the arithmetic of its vectors: starting points,
models, gradients and results of all clients of a batch.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import workloads as plain
from lora_encoder import LoraEncoder
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from offbeat.algorithms import FedBuff, LocalPlan
from offbeat.coordinator import Coordinator
from offbeat.population.availability import Always
from offbeat.population.devices.client_devices import ConstantLink, Devices
from offbeat.simulation.simulator import Simulation
from offbeat.simulation.totals import Stop
from offbeat.training.accelerator import Accelerator, choose_device
from offbeat.training.flat_model import FlatModel
from offbeat.training.models import resnet18
from offbeat.training.trainers.backend import Job
from offbeat.training.trainers.choice import make_trainer
from offbeat.training.trainers.trainer import Trainer
from offbeat.training.workload import Examples, Objective, Workload

REPETITIONS = 5


@dataclass(frozen=True)
class Case:
    """A workload: a model, its clients, and a client's work in a visit."""

    name: str
    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    tokens: int | None
    classes: int
    clients: int
    examples: int
    at_once: int
    """Clients that a trainer gets together."""
    plan: LocalPlan

    def workload(self, accelerator: Accelerator) -> Workload:
        """Return the workload on a device."""
        torch.manual_seed(0)
        total = self.clients * self.examples
        inputs = torch.randint(self.tokens, (total, *self.shape)) if self.tokens else torch.randn(total, *self.shape)
        shards = np.split(np.random.default_rng(0).permutation(total), self.clients)
        examples = Examples(inputs, torch.randint(self.classes, (total,)))
        return Workload(FlatModel(self.make()), Objective(cross_entropy), examples, shards, 1).to(accelerator)


CASES = [
    Case("W1", plain.softmax_regression, (784,), None, 10, 2048, 60, 1024, LocalPlan(steps=10, batch_size=5, lr=0.1)),
    Case("W2", plain.cnn, (3, 32, 32), None, 10, 128, 200, 128, LocalPlan(steps=10, batch_size=20, lr=0.01)),
    Case(
        "W3",
        lambda: resnet18((3, 32, 32), 10),
        (3, 32, 32),
        None,
        10,
        100,
        500,
        12,
        LocalPlan(steps=5, batch_size=20, lr=0.01),
    ),
    Case("W4", LoraEncoder, (50,), 30_522, 2, 32, 100, 32, LocalPlan(steps=5, batch_size=16, lr=0.01)),
]


def plain_loop(workload: Workload, plan: LocalPlan, clients: int) -> float:
    """Return the updates per second of a plain loop that only trains clients."""
    module, (inputs, labels) = workload.model.module.train(), workload.train
    start = workload.model.vector.clone()
    shards = [torch.from_numpy(shard).to(inputs.device) for shard in workload.shards]
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    began = _now(workload)
    for client in range(clients):
        workload.model.vector.copy_(start)
        optimizer = torch.optim.SGD(parameters, lr=float(np.max(plan.lr)))
        order = torch.randperm(len(shards[client]), device=inputs.device)
        for step in range(plan.steps):
            at = step * plan.batch_size % len(order)
            chosen = shards[client][order[at : at + plan.batch_size]]
            optimizer.zero_grad(set_to_none=False)
            with workload.accelerator.autocast():
                loss = cross_entropy(module(inputs[chosen]), labels[chosen])
            loss.backward()
            optimizer.step()
        _: Tensor = start - workload.model.vector
    seconds = _now(workload) - began
    workload.model.vector.copy_(start)
    return clients / seconds


def trained(trainer: Trainer, plan: LocalPlan, clients: int) -> float:
    """Return the updates per second of a trainer that gets that many clients together."""
    workload = trainer.workload
    start = workload.model.vector.clone()
    jobs = [Job(client, 0, 0, start, plan, "delta") for client in range(clients)]
    began = _now(workload)
    for first in range(0, clients, trainer.batch_limit):
        trainer.collect(jobs[first : first + trainer.batch_limit])
    return clients / (_now(workload) - began)


def simulated(case: Case, workload: Workload, at_work: int) -> float:
    """Return the updates per second of a whole simulation of FedBuff."""
    updates = 4 * at_work
    fast = ConstantLink(np.full(case.clients, 1e12))
    devices = Devices(
        step_seconds=np.random.default_rng(1).uniform(0.5, 1.5, case.clients),
        down=fast,
        up=fast,
        loss_probability=np.zeros(case.clients),
        availability=Always(),
        when_away="pause",
    )
    algorithm = FedBuff(buffer_size=max(1, at_work // 2), concurrency=at_work)
    world = Simulation(
        Coordinator(algorithm, workload.model.vector.clone(), clients=case.clients, local=case.plan),
        devices,
        make_trainer("auto", workload, plan=case.plan),
        evaluate=lambda model: (0.0, {}),
        evaluate_every_seconds=1e9,
        stop=Stop(updates=updates),
        seed=1,
    )
    began = _now(workload)
    while not world.finished:
        world.step()
    _ = world.model
    rate = updates / (_now(workload) - began)
    world.close()
    return rate


def by_pfl(case: Case, workload: Workload, cohort: int) -> float:
    """Return the updates per second of pfl-research's FedAvg."""
    os.environ["PFL_PYTORCH_DEVICE"] = str(workload.accelerator.device)
    from on_pfl import Dataset, fedavg

    inputs, labels = workload.train
    assert isinstance(inputs, Tensor)
    shards = [torch.from_numpy(shard).to(labels.device) for shard in workload.shards]
    clients = [Dataset((inputs[shard], labels[shard])) for shard in shards]
    plan = case.plan
    return fedavg(
        plain.Workload(
            case.name,
            case.shape,
            case.make,
            clients=case.clients,
            examples=case.examples,
            cohort=cohort,
            steps=plan.steps,
            batch_size=plan.batch_size,
            lr=float(np.max(plan.lr)),
            looped=0,
            rounds=1,
        ),
        clients,
        torch.get_num_threads(),
    )


def _has_pfl() -> bool:
    try:
        import on_pfl  # noqa: F401 # pyright: ignore[reportUnusedImport]
    except ImportError as error:
        print(f"without pfl-research: {error}", flush=True)
        return False
    return True


def _now(workload: Workload) -> float:
    if workload.accelerator.is_cuda:
        torch.cuda.synchronize(workload.accelerator.device)
    return time.perf_counter()


def memory(trainer: Trainer, case: Case, clients: int) -> dict[str, float]:
    """Return the MiB that a batch takes on the GPU, and those of its vectors."""
    workload = trainer.workload
    if not workload.accelerator.is_cuda:
        return {}
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    trained(trainer, case.plan, clients)
    vectors = 4 * trainer.batch_limit * len(workload.model.vector) * 4  # batches are filled up
    return {
        "memory_mib": round((torch.cuda.max_memory_allocated() - before) / 2**20, 1),
        "vectors_mib": round(vectors / 2**20, 1),
    }


def measure(case: Case, accelerator: Accelerator, quick: bool) -> list[dict[str, Any]]:
    """Measure the trainers in turn, each time after the plain loop; return the rows."""
    workload = case.workload(accelerator)
    clients = min(case.at_once, case.clients)
    looped, repetitions = (2, 1) if quick else (max(4, clients // 16), REPETITIONS)
    clients = min(clients, 4) if quick else clients
    trainers = {
        name: make_trainer(name, workload, plan=case.plan)
        for name in ("loop", "vmap", "unfold")
        if _can(name, case, workload)
    }
    rows: dict[str, Callable[[], float]] = {
        trainer.kernel if name == "loop" else name: lambda trainer=trainer: trained(trainer, case.plan, clients)
        for name, trainer in trainers.items()
    }
    rows["offbeat"] = lambda: simulated(case, workload, clients)
    if accelerator.precision != "bf16" and _has_pfl():  # which would need settings of its own
        rows["pfl"] = lambda: by_pfl(case, workload, max(2, clients // 8))
    found: list[dict[str, Any]] = []
    for name, work in rows.items():
        work()  # libraries choose kernels, graphs are recorded
        loops = [plain_loop(workload, case.plan, looped) for _ in range(repetitions)]
        rates = [work() for _ in range(repetitions)]
        ratios = [rate / loop for rate, loop in zip(rates, loops, strict=True)]
        found.append(
            {
                "card": _card(accelerator),
                "workload": case.name,
                "trainer": name,
                "updates_per_second": round(statistics.median(rates), 1),
                "loop_per_second": round(statistics.median(loops), 1),
                "ratio_to_loop": round(statistics.median(ratios), 2),
                "spread": [round(min(ratios), 2), round(max(ratios), 2)],
                **(memory(trainers[name], case, clients) if name in trainers else {}),
            }
        )
        print(json.dumps(found[-1]), flush=True)
    return found


def _card(accelerator: Accelerator) -> str:
    return torch.cuda.get_device_name(accelerator.device) if accelerator.is_cuda else "cpu"


def _can(name: str, case: Case, workload: Workload) -> bool:
    try:
        make_trainer(name, workload, plan=case.plan)  # pyright: ignore[reportArgumentType]
    except Exception as error:
        print(f"{case.name}: {error}", flush=True)
        return False
    return True


def main() -> None:
    """Print the rows, and write them as JSON."""
    parser = argparse.ArgumentParser(description="Client updates a second on a GPU.")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", default="float32", choices=["float32", "tf32", "bf16"])
    parser.add_argument("--workload", choices=[case.name for case in CASES])
    parser.add_argument("--quick", action="store_true", help="once, with few clients")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    accelerator = Accelerator(choose_device(arguments.device), arguments.precision)
    cases = [case for case in CASES if arguments.workload in (None, case.name)]
    if arguments.quick:
        cases = [replace(case, clients=min(case.clients, 8), plan=replace(case.plan, steps=2)) for case in cases]
    with accelerator.numerics():
        rows = [row for case in cases for row in measure(case, accelerator, arguments.quick)]
    card = _card(accelerator)
    report = {"device": card, "precision": arguments.precision, "torch": torch.__version__, "rows": rows}
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"\n{card}, {arguments.precision}, torch {torch.__version__}\n")
    print("| workload | trainer | updates/s | × loop | spread |\n| --- | --- | ---: | ---: | --- |")
    for row in rows:
        low, high = row["spread"]
        print(
            f"| {row['workload']} | {row['trainer']} | {row['updates_per_second']:,} | {row['ratio_to_loop']} | "
            f"{low} … {high} |"
        )


if __name__ == "__main__":
    main()
