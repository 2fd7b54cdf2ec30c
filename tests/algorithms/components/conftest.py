import pytest
import torch
from torch import Tensor

from offbeat.algorithms import DOES_NOT_COUNT, Algorithm, Update
from offbeat.algorithms.components import ClosedBuffer, Continuous, Count, Positive, RunFacts, Schedule, Sum, Weight


class Mean(Algorithm[Schedule]):
    """``w ← w − lr · mean`` of every ``size`` updates, written as an author would; what else it keeps is tested."""

    name = "mean"

    size: Count = 2
    places: Count = 4
    lr: Positive = 1.0

    def compose(self) -> None:
        self.schedule = Continuous(self.places)
        self.buffer = Sum()

    def check_run(self, run: RunFacts) -> None:
        if self.size > run.clients:
            raise ValueError(f"size must be at most the number of clients, {run.clients}, got {self.size}")

    def begin(self, model: Tensor) -> None:
        self.largest = model.clone()
        self.heard = 0
        self.examples: dict[int, int] = {}

    def weigh(self, update: Update) -> float | Weight:
        if update.examples > 1000:
            raise ValueError("examples must be at most 1000")
        return DOES_NOT_COUNT if update.steps == 0 else 1.0

    def note(self, update: Update) -> None:
        self.heard += 1
        self.examples[update.client] = update.examples

    def is_ready(self) -> bool:
        return self.buffer.count == self.size

    def next_model(self, model: Tensor, closed: ClosedBuffer) -> Tensor:
        following = model - self.lr * closed.mean(closed.count)
        self.largest = torch.maximum(self.largest, following)
        return following


@pytest.fixture(scope="session")
def mean() -> type[Mean]:
    """The class of a small algorithm, to be run or to be extended."""
    return Mean
