"""The protocol of trainers: jobs in, results out."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from torch import Tensor

from offbeat.algorithms.components import LocalPlan, Payload


class Job(NamedTuple):
    """The local training of one visit.

    Attributes:
        client: The client.
        visit: Number of the client's earlier visits; with the seed it determines the visit's randomness.
        version: The version of the model that the client downloaded.
        start: That model, float32 ``(d,)``; not copied, never changed.
        plan: The local steps.
        payload: The kind of upload that the algorithm wants. For a ``difference`` the trainer returns the delta, and
            the caller subtracts the client's last upload.
        offset: Added to each local gradient, float32 ``(d,)``; None for no offset.
    """

    client: int
    visit: int
    version: int
    start: Tensor
    plan: LocalPlan
    payload: Payload
    offset: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a visit's training.

    Attributes:
        vector: Delta or, for ``params``, final model, float32 ``(d,)``, not shared with other tensors. It is not
            compressed yet.
        loss: Mean training loss over the visit's steps.
    """

    vector: Tensor
    loss: float


class Trainer(Protocol):
    """Local training of clients.

    Trainers identify jobs by object identity: an expected job is the same object when it is trained.

    Attributes:
        name: Results of trainers of one name are bit-equal, those of different names equal up to rounding.
        batch_limit: The best number of jobs to train at once.
    """

    name: str
    batch_limit: int

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
    """Return the vector of a ``Result`` from ``start`` to ``end``, a new tensor.

    Both are ``(d,)``.
    """
    if payload in ("delta", "difference"):
        return start - end
    if payload == "params":
        return end.clone()
    raise ValueError(f"this trainer cannot make the payload {payload!r}")
