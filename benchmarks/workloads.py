"""The two workloads, and the plain loop that every peer is compared with.

The loop trains clients one after the other. All is plain PyTorch: a peer's environment does not have Offbeat.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy


def softmax_regression() -> nn.Module:
    """Return multinomial logistic regression of 784 numbers to ten classes."""
    layer = nn.Linear(784, 10)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return nn.Sequential(nn.Flatten(), layer)


def cnn() -> nn.Module:
    """Return the built-in CNN for 32x32 colour images and ten classes."""
    return nn.Sequential(
        nn.Conv2d(3, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 64, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * 8 * 8, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


@dataclass(frozen=True)
class Workload:
    """A model, its clients, what a client does, and how long one measurement is."""

    name: str
    shape: tuple[int, ...]
    make: Callable[[], nn.Module]
    clients: int
    examples: int
    cohort: int
    steps: int
    batch_size: int
    lr: float
    looped: int
    """Updates of the plain loop."""
    rounds: int
    """Rounds of a peer, after the first where that is left out."""

    @cache  # noqa: B019 - there are two workloads, which live as long as the program
    def data(self) -> tuple[Tensor, Tensor]:
        """Return everyone's inputs and labels."""
        random = torch.Generator().manual_seed(0)
        total = self.clients * self.examples
        return torch.randn(total, *self.shape, generator=random), torch.randint(0, 10, (total,), generator=random)

    def client(self, index: int) -> tuple[Tensor, Tensor]:
        """Return a client's inputs and labels."""
        mine = slice(index * self.examples, (index + 1) * self.examples)
        inputs, labels = self.data()
        return inputs[mine], labels[mine]


W1 = Workload(
    "W1",
    (784,),
    softmax_regression,
    clients=1000,
    examples=60,
    cohort=100,
    steps=10,
    batch_size=5,
    lr=0.1,
    looped=500,
    rounds=5,
)
W2 = Workload(
    "W2",
    (3, 32, 32),
    cnn,
    clients=10,
    examples=200,
    cohort=10,
    steps=10,
    batch_size=20,
    lr=0.01,
    looped=10,
    rounds=2,
)
WORKLOADS = {workload.name: workload for workload in (W1, W2)}


def train(workload: Workload, model: nn.Module, inputs: Tensor, labels: Tensor, mine: Tensor) -> None:
    """Take a client's local steps on its examples, which are the rows ``mine``."""
    optimizer = torch.optim.SGD(model.parameters(), lr=workload.lr)
    needed = workload.steps * workload.batch_size
    order = torch.cat([torch.randperm(len(mine)) for _ in range(-(-needed // len(mine)))])
    for step in range(workload.steps):
        chosen = mine[order[step * workload.batch_size : (step + 1) * workload.batch_size]]
        optimizer.zero_grad()
        cross_entropy(model(inputs[chosen]), labels[chosen]).backward()
        optimizer.step()


def plain_loop(workload: Workload) -> float:
    """Return updates per second of a loop that only trains clients.

    The loop runs on one thread.
    """
    torch.set_num_threads(1)
    inputs, labels = workload.data()
    shards = torch.randperm(len(inputs)).split(workload.examples)
    model = workload.make()
    start = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    began = time.perf_counter()
    for client in range(workload.looped):
        nn.utils.vector_to_parameters(start.clone(), model.parameters())
        train(workload, model, inputs, labels, shards[client % workload.clients])
        _ = start - nn.utils.parameters_to_vector(model.parameters()).detach()
    return workload.looped / (time.perf_counter() - began)
