"""The protocol of trainers: jobs in, results out."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from torch import Tensor

from offbeat.algorithms.components import LocalPlan, Payload


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


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a visit's training."""

    vector: Tensor  # delta or, for params, final model, float32 (d,), not shared with other tensors, not compressed
    loss: float  # mean training loss over the visit's steps


class Trainer(Protocol):
    """Local training of clients.

    Trainers identify jobs by object identity: an expected job is the same object when it is trained.

    The trainers of real models have these arguments:

    - model: Its values may be overwritten.
    - loss: Maps (outputs, labels) to the mean loss of a minibatch.
    - inputs, labels: All clients' training examples, ``(n, …)``.
    - shards: For each client the indices of its examples, int64 ``(n_i,)``.
    - seed: The run's seed.
    - augmentation: Name of the inputs' augmentation; None for none.
    """

    name: str
    """Results of trainers of one name are bit-equal, those of different names equal up to rounding."""
    batch_limit: int
    """The best number of jobs to train at once."""

    @abstractmethod
    def examples(self, client: int) -> int:
        """Return the client's number of examples, n_i."""
        ...

    @abstractmethod
    def train(self, jobs: Sequence[Job]) -> list[Result]:
        """Train each job from its start and return the results in the order of the jobs.

        A result depends on its job only, not on other or earlier jobs.
        """
        ...

    def expect(self, job: Job) -> None:
        """Announce a job that will probably be trained; idle processes may begin with it."""

    def forget(self, job: Job) -> None:
        """Withdraw a job; it need not have been expected."""

    def close(self) -> None:
        """End the trainer's processes, if it has any."""


def result_vector(payload: Payload, start: Tensor, end: Tensor) -> Tensor:
    """Return the vector of a ``Result`` from ``start`` to ``end``, both ``(d,)``, as a new tensor."""
    if payload in ("delta", "difference"):
        return start - end
    if payload == "params":
        return end.clone()
    raise ValueError(f"this trainer cannot make the payload {payload!r}")
