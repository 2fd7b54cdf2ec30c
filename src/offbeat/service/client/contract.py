"""What a user's client is: one class with ``fit``, or one function."""

import threading
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from offbeat.algorithms.components import LocalPlan, Payload


@dataclass(frozen=True, slots=True)
class Visit:
    """A piece of work: train from one version of the model by a plan.

    Attributes:
        client: Whose it is, 0 ≤ client < N.
        number: 0, 1, … of this client.
        version: The version of the model to start from.
        since: The version of the client's last counted update; None if there is none.
        payload: What is uploaded.
        length: The number of parameters d.
        seed: The run's seed; with the client and the number it fixes every random number of the visit.
        plan: What to do.
        lease_seconds: How long the server keeps the client's place without a heartbeat; None for ever.
        needs_loss: Whether ``fit`` has to return the visit's mean training loss.
        corrects_gradients: Whether ``offset`` has to be added to each local gradient.
        offset: By parameter name, what to add; the client's own, and may be changed in place. None for nothing.
        urgent: Set once the server wants what there is: hand it in after the step you are at. To heed it is optional.
    """

    client: int
    number: int
    version: int
    since: int | None
    payload: Payload
    length: int
    seed: int
    plan: LocalPlan
    lease_seconds: float | None = None
    needs_loss: bool = False
    corrects_gradients: bool = False
    offset: dict[str, Tensor] | None = field(default=None, repr=False, compare=False)
    urgent: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Fitted:
    """What came out of training.

    Attributes:
        model: The trained model: every parameter that was given, by name, in its shape. What else is there, such as
            the buffers of a ``state_dict``, is left out.
        examples: How many examples the client holds, ≥ 1.
        steps: Local steps taken, 1 … those of the plan; None for all of them.
        normaliser: FedNova's a_i ≥ 0; None for that of the plan's SGD with so many steps.
        loss: The mean training loss over these steps; sent only where the visit says ``needs_loss``.
    """

    model: dict[str, Tensor]
    examples: int
    steps: int | None = None
    normaliser: float | None = None
    loss: float | None = None


Fit = Callable[[dict[str, Tensor], Visit], Fitted | tuple[dict[str, Tensor], int]]
"""Maps a model by parameter name and a visit to what came out of training; a plain (model, examples) will do."""


class Client(Protocol):
    """A user's client.

    It may have an attribute ``examples``, how many examples it holds, which the server is told once, when the client
    enrols. Algorithms that weigh all clients by their examples need it. A client that adds ``visit.offset`` to each
    local gradient says so by an attribute ``corrects_gradients = True``; algorithms such as SCAFFOLD take no other. A
    function may have these attributes, too.

    Where the algorithm plans by speed, ``fit`` is called twice before the first visit, with a plan of one step: it is
    timed, and what it returns is thrown away.
    """

    @abstractmethod
    def fit(self, model: dict[str, Tensor], visit: Visit) -> Fitted | tuple[dict[str, Tensor], int]:
        """Train ``model`` by ``visit.plan``; the tensors are the client's own and may be changed in place."""
        ...
