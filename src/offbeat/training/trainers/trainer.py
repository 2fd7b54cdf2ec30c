"""The seam between a world and whatever trains its clients: jobs in, results out."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from torch import Tensor

from offbeat.algorithms.components import LocalPlan, Payload


class Job(NamedTuple):
    """One visit: what a client is to do.

    Attributes:
        client: Who.
        visit: How many times the client had been given work before; with the seed it fixes the visit's randomness.
        version: The version of the model that the client downloaded.
        start: That model, float32 ``(d,)``; not copied, never changed.
        plan: Its local steps.
        payload: What the algorithm wants uploaded; of a ``difference`` the trainer makes the delta, what it is the
            difference to is the client's own affair.
        offset: Added to each local gradient, float32 ``(d,)``; None for nothing.
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
    """What came out of a visit.

    Attributes:
        vector: Delta or, for ``params``, end point, float32 ``(d,)``, a tensor of its own; what of it is sent, and how,
            comes later: ``sending``.
        loss: Mean training loss over the visit's steps.
    """

    vector: Tensor
    loss: float


class Trainer(Protocol):
    """Trains clients.

    A trainer knows a job by its identity: what it was told to expect is the very object that it is given to train.

    Attributes:
        name: Trainers of one name give the same results to the bit, those of different names but for rounding.
        batch_limit: How many jobs it is best given at once.
    """

    name: str
    batch_limit: int

    @abstractmethod
    def examples(self, client: int) -> int:
        """Return how many examples n_i the client holds."""
        ...

    @abstractmethod
    def train(self, jobs: Sequence[Job]) -> list[Result]:
        """Train each job from its own start; the results come in the order of the jobs.

        A result depends on nothing but its own job: not on the other jobs, nor on what was trained before.
        """
        ...

    def expect(self, job: Job) -> None:
        """Note that this job will probably be asked for: a trainer whose processes are idle may begin with it."""

    def forget(self, job: Job) -> None:
        """Note that nobody will ask for this job any more; it need not have been expected."""

    def close(self) -> None:
        """End its processes, if it has any."""


def result_vector(payload: Payload, start: Tensor, end: Tensor) -> Tensor:
    """Return a ``Result``'s vector for a client that went from ``start`` to ``end``, both ``(d,)``; a new tensor."""
    if payload in ("delta", "difference"):
        return start - end
    if payload == "params":
        return end.clone()
    raise ValueError(f"this trainer cannot make the payload {payload!r}")
