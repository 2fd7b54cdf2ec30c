"""The protocol of a trainer's backends: jobs in, results out."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from offbeat.algorithms.components import LocalPlan, Payload
from offbeat.training.workload import Workload


class Job(NamedTuple):
    """The local training of one visit.

    For the payload ``difference`` the trainer returns the delta, and the caller subtracts the client's last upload.
    """

    client: int
    visit: int  # number of the client's earlier visits; with the seed it determines the visit's randomness
    version: int  # of the model that the client downloaded
    start: Tensor  # that model, float32 (d,); not copied, never changed
    plan: LocalPlan
    payload: Payload
    offset: Tensor | None = None  # added to each local gradient, float32 (d,)
    state: bytes | None = None  # of the client's last counted visit, for a trainer that keeps states

    @property
    def key(self) -> tuple[int, int]:
        """The client and the visit."""
        return self.client, self.visit

    def is_same(self, other: "Job") -> bool:
        """Return whether both give the same result.

        Tensors are compared by identity.
        """
        numbers = (self.key, self.version, self.plan, self.payload)
        return (
            numbers == (other.key, other.version, other.plan, other.payload)
            and self.start is other.start
            and self.offset is other.offset
        )


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a visit's training."""

    vector: Tensor  # delta or, for params, final model, float32 (d,), not shared with other tensors, not compressed
    loss: float  # mean training loss over the visit's steps
    squares: float | None = None  # sum of the vector's squares, infinite or NaN if an entry is; None if not computed
    state: bytes | None = None  # of a trainer that keeps states, once the visit has counted
    examples: int | None = None  # that the client holds; None for those of the workload


class Backend(Protocol):
    """A way to train clients; a ``Trainer`` uses it."""

    workload: Workload
    name: str
    """Results of backends of one name are bit-equal, those of different names equal up to rounding."""
    batch_limit: int
    """The best number of jobs to train at once."""
    keeps_states: bool = False
    """A job needs the state of the client's last counted visit, and its result says how many examples the client
    holds."""
    notes: Sequence[str] = ()
    """What a user should know of the run, for instance that its kernels are slow ones."""

    @property
    def kernel(self) -> str:
        """The name of the computation of a step, for reports."""
        return self.name

    @abstractmethod
    def train(self, jobs: Sequence[Job]) -> list[Result]:
        """Return the results of jobs, in their order.

        Each job is trained from its start, unless it has been already. A result depends on its job only, not on other
        or earlier jobs.
        """
        ...

    def submit(self, job: Job) -> None:
        """Announce a job that will probably be trained; a backend elsewhere may begin."""

    def cancel(self, job: Job) -> None:
        """Withdraw a job; it need not have been submitted."""

    def close(self) -> None:
        """End the backend's processes, if it has any."""


def read_numbers(numbers: Tensor) -> list[Any]:
    """Return a tensor's entries as nested lists.

    Backends read once a batch: a GPU has to finish all its computations for it.
    """
    return numbers.tolist()


def results_of(vectors: Sequence[Tensor], losses: Sequence[Tensor]) -> list[Result]:
    """Return results from vectors ``(d,)`` and mean losses ``()``."""
    read = read_numbers(torch.stack([*losses, *(vector.dot(vector) for vector in vectors)]))
    return [Result(*parts) for parts in zip(vectors, read[: len(losses)], read[len(losses) :], strict=True)]


def result_vector(payload: Payload, start: Tensor, end: Tensor) -> Tensor:
    """Return the vector of a ``Result`` from ``start`` to ``end``, both ``(d,)``.

    The vector is a new tensor.
    """
    if payload in ("delta", "difference"):
        return start - end
    if payload == "params":
        return end.clone()
    raise ValueError(f"this trainer cannot make the payload {payload!r}")
