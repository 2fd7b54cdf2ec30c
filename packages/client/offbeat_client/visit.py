"""The user's side of a client: ``fit`` maps a visit to a training result."""

import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol

from offbeat_core.digests import DigestKind
from offbeat_core.errors import OffbeatError
from offbeat_core.local_plan import LocalPlan, Payload
from offbeat_core.messages import VisitMessage
from offbeat_core.sent_update import check_sending
from typing_extensions import TypeVar

Array = TypeVar("Array", default=Any)
"""A parameter's type: numpy arrays here, torch tensors in ``offbeat.client``."""


@dataclass(frozen=True, slots=True)
class Visit(Generic[Array]):
    """An assignment: train from one version of the model by a plan.

    Attributes:
        client: The client's number, 0 ≤ client < N.
        number: 0, 1, … of this client.
        version: The version of the model to start from.
        since: The version of the client's last counted update; None if there is none.
        payload: The content of the update.
        length: The number of parameters d.
        seed: The run's seed; with client and number it fixes every random number of the visit.
        plan: The local training.
        lease_seconds: How long the server keeps the client's slot without a heartbeat; None for no limit.
        model_sha256: The SHA-256 of the version's file, in hexadecimal digits.
        digest: The kind of digest that the server prefers for the update.
        needs_loss: Whether ``fit`` has to return the visit's mean training loss.
        corrects_gradients: Whether ``offset`` has to be added to each local gradient.
        offset: The offset by parameter name; a copy that may be changed in place. None for no offset.
        state: What the client returned as ``state`` with its last counted update; None if there is none.
        urgent: Set once the server wants the update early: return it after the current step. Optional.

    Examples:
        >>> visit = Visit(
        ...     client=4, number=0, version=12, since=None, payload="delta", length=650, seed=1,
        ...     plan=LocalPlan(steps=5, batch_size=10, lr=0.1),
        ... )
        >>> visit.plan.steps
        5
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
    model_sha256: str = ""
    digest: DigestKind = "sha256"
    needs_loss: bool = False
    corrects_gradients: bool = False
    offset: dict[str, Array] | None = field(default=None, repr=False, compare=False)
    state: bytes | None = field(default=None, repr=False, compare=False)
    urgent: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)


def visit_of(message: VisitMessage, client: int) -> Visit:
    """Return a client's visit; ``OffbeatError`` if it cannot carry out the plan."""
    try:
        plan = message.plan.plan()
        check_sending(message.payload, plan, message.length)
    except (LookupError, TypeError, ValueError) as error:
        raise OffbeatError(
            f"the server's plan is not understood ({type(error).__name__}: {error}): "
            "is this version of Offbeat as new as the server's?"
        ) from error
    visit = Visit(client=client, plan=plan, **message.model_dump(exclude={"plan", "urgent", "privacy"}))
    if message.urgent:
        visit.urgent.set()
    return visit


@dataclass(frozen=True, slots=True)
class Fitted(Generic[Array]):
    """The result of local training.

    Attributes:
        model: The trained model: every given parameter by name, in its shape. Other entries, such as the buffers of a
            ``state_dict``, are ignored.
        examples: How many examples the client holds, ≥ 1.
        steps: Local steps taken, 1 … those of the plan; None for all of them.
        normaliser: FedNova's a_i ≥ 0; None for that of the plan's SGD with so many steps.
        loss: The mean training loss over these steps; uploaded only where the visit says ``needs_loss``.
        state: What the client wants to have again as ``visit.state``, once this update has counted; it stays in the
            client's folder. None keeps the state as it is.

    Examples:
        >>> fitted = Fitted({"weight": np.zeros((10, 64))}, examples=80, loss=0.31)
    """

    model: Mapping[str, Array]
    examples: int
    steps: int | None = None
    normaliser: float | None = None
    loss: float | None = None
    state: bytes | None = field(default=None, repr=False)


Fit = Callable[[dict[str, Array], Visit[Array]], Fitted[Array] | tuple[Mapping[str, Array], int]]
"""Maps a model by parameter name and a visit to a training result; a plain (model, examples) is enough.

Examples:
    >>> def fit(model, visit):
    ...     model["bias"] -= visit.plan.lr
    ...     return model, 80
"""


Evaluate = Callable[[dict[str, Array]], tuple[Mapping[str, float], int]]
"""Maps a model by parameter name to (metrics by name, number of held-out examples).

Examples:
    >>> def evaluate(model):
    ...     return {"accuracy": 0.9, "recall": 0.85}, 20
"""


class Client(Protocol[Array]):
    """A user's client.

    An optional method, ``evaluate``, measures a model on examples that the client does not train on; see ``Evaluate``.
    The server asks only clients that have it. Nothing is sent if it fails.

    Two optional attributes, which a function may have, too: ``examples``, how many examples the client holds, is
    declared to the server once at enrolment; algorithms that weigh all clients by their examples need it, and runs
    whose steps depend on them. ``corrects_gradients = True`` says that the client adds ``visit.offset`` to each local
    gradient; algorithms such as SCAFFOLD accept no other clients.

    Where the algorithm plans by speed, ``fit`` is called twice before the first visit, with a plan of one step: it is
    timed, and its result is discarded.

    Examples:
        >>> class Hospital:
        ...     examples = 80
        ...
        ...     def fit(self, model, visit):
        ...         for _ in range(visit.plan.steps):
        ...             model["weight"] -= visit.plan.lr * gradient(model)  # yours
        ...         return model, self.examples
        ...
        ...     def evaluate(self, model):
        ...         return {"accuracy": 0.9}, 20
    """

    @abstractmethod
    def fit(self, model: dict[str, Array], visit: Visit[Array]) -> Fitted[Array] | tuple[Mapping[str, Array], int]:
        """Train ``model``, which may be changed in place, by ``visit.plan``."""
