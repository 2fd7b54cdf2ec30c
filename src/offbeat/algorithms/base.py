"""The contract between an algorithm and whoever drives it: a simulator, a server or a test."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from offbeat.algorithms.checks import LARGEST_COUNT, check_client, check_count, check_not_negative, check_positive

Payload = Literal["delta", "params", "difference"]


class Promise(Protocol):
    """A vector that is computed when it is first needed."""

    def resolve(self) -> Tensor:
        """Return the vector, float32 ``(d,)``."""
        ...


Vector = Tensor | Promise


def resolve(vector: Vector, length: int) -> Tensor:
    """Return the tensor behind ``vector``, without its autograd graph; a ``ValueError`` unless it is ``(length,)``."""
    tensor = vector if isinstance(vector, Tensor) else vector.resolve()
    check_shape(tensor, length)
    return tensor.detach() if tensor.requires_grad else tensor


@dataclass(frozen=True, slots=True)
class Compression:
    """How an update travels: one of the compressors of ``offbeat.compression``, by name.

    Attributes:
        name: For instance ``top_k``.
        parameters: The compressor's own, for instance ``(("share", 0.01),)``.
    """

    name: str
    parameters: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class LocalPlan:
    """What a client does in one visit: ``steps`` minibatch steps of SGD from the model that it was given.

    Attributes:
        steps: Local SGD steps, ≥ 1 (the papers' Q, k or C).
        batch_size: Examples a step, ≥ 1; a client with fewer uses all of them in every step.
        lr: Step size > 0, one for all steps or one for each (the papers' γ_t).
        momentum: ρ of SGD with momentum, 0 ≤ ρ < 1; the buffer starts at zero in every visit.
        weight_decay: λ ≥ 0, adds λw to the gradient after clipping, as ``torch.optim.SGD`` does.
        mu: FedProx's μ ≥ 0, adds μ(w − w_start) to the gradient; lr·μ < 2; not together with momentum.
        clip_norm: Largest norm of a step's gradient, its proximal term included; None does not clip.
        compression: How the update is made smaller; None sends it whole.
        error_feedback: The client remembers what compression left out and adds it to its next update.

    Raises:
        ValueError: A value is out of range.
    """

    steps: int
    batch_size: int
    lr: float | tuple[float, ...]
    momentum: float = 0.0
    weight_decay: float = 0.0
    mu: float = 0.0
    clip_norm: float | None = None
    compression: Compression | None = None
    error_feedback: bool = False

    def __post_init__(self) -> None:
        check_count("steps", self.steps)
        check_count("batch_size", self.batch_size)
        rates = self.lr if isinstance(self.lr, tuple) else (self.lr,)
        for rate in rates:
            check_positive("lr", rate)
        if isinstance(self.lr, tuple) and len(self.lr) != self.steps:
            raise ValueError(f"lr must be one number or a tuple of {self.steps}, one a step, got {len(self.lr)}")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must be in [0, 1), got {self.momentum}")
        check_not_negative("weight_decay", self.weight_decay)
        check_not_negative("mu", self.mu)
        if max(rates) * self.mu >= 2:
            raise ValueError(f"lr · mu must be less than 2, or the proximal term diverges, got {max(rates) * self.mu}")
        if self.momentum and self.mu:
            raise ValueError("momentum and mu cannot be combined: set one of them to 0")
        if self.clip_norm is not None:
            check_positive("clip_norm", self.clip_norm)
        if self.error_feedback and self.compression is None:
            raise ValueError("error_feedback makes up for compression: set compression, or leave it out")

    def prefix(self, steps: int) -> "LocalPlan":
        """Return the plan of a visit that is cut short after the first ``steps``, 1 ≤ steps ≤ ``self.steps``."""
        if not 1 <= steps <= self.steps:
            raise ValueError(f"steps must be in 1 … {self.steps}, got {steps}")
        return replace(self, steps=steps, lr=self.lr[:steps] if isinstance(self.lr, tuple) else self.lr)


@dataclass(frozen=True, slots=True)
class Update:
    """What a client hands in at the end of a visit.

    Attributes:
        client: Who, 0 ≤ client < N.
        version: The version of the model that the client started from.
        vector: float32 ``(d,)``, what the algorithm's ``payload`` says; a tensor or a promise of one. A tensor is
            handed over: whoever made it does not change it afterwards.
        examples: Examples that the client holds, 1 ≤ n_i < 2³¹.
        steps: Local steps taken, 0 ≤ steps < 2³¹ (fewer than planned if the visit was cut short).
        normaliser: FedNova's a_i ≥ 0; ``steps`` for plain SGD.
        base: The vector that the client started from; only where the algorithm says ``needs_base``.
        since: The version of the client's last counted update, to which a difference refers.
        step_seconds: Measured seconds a local step.
        upload_seconds: Measured seconds for an uncompressed upload.
    """

    client: int
    version: int
    vector: Vector
    examples: int
    steps: int
    normaliser: float
    base: Tensor | None = None
    since: int | None = None
    step_seconds: float | None = None
    upload_seconds: float | None = None


class Algorithm(Protocol):
    """A server-side algorithm: a state machine without clock, thread, file, socket or global random state.

    Its order of life: ``start`` (or ``load_state_dict``), then ``assign`` whenever ``slots`` asks for clients,
    ``receive`` or ``drop`` for each of them, and ``tick`` every ``period`` seconds where there is a period.

    It knows a piece of work by its client and version. Whoever drives it tells apart two visits of one client from
    the same version, as ``Coordinator`` does.
    """

    name: str
    payload: Payload  # what clients upload: start − end, end, or delta minus the client's last counted delta
    linear: bool = True  # the algorithm needs only a weighted sum and never looks at one client's vector
    needs_base: bool = False  # updates must carry ``base``
    wants_all: bool = False  # whatever was assigned counts, however late it comes: ``wants`` is then always true of it
    selection: str = "uniform"  # how the coordinator picks the next client
    measures: bool = False  # plans by what clients were measured at, so none may be refused before it counted
    pooled: bool = False  # no federation: one client holds all the data, and nothing travels
    period: float | None = None  # seconds between two ticks; None: the algorithm has no clock

    @property
    def weighs_all_clients(self) -> bool:
        """Whether ``start`` needs every client's data weight: it averages over all clients, by their examples."""
        return False

    @property
    @abstractmethod
    def model(self) -> Tensor:
        """The current model, float32 ``(d,)``; never changed in place: a new version is a new tensor."""
        ...

    @property
    @abstractmethod
    def version(self) -> int:
        """How many server steps have been taken."""
        ...

    @property
    def result(self) -> Tensor:
        """What the run has learnt so far, ``(d,)``: the current model, unless the algorithm averages its models."""
        return self.model

    @property
    def round(self) -> int | None:
        """The number of the round or period that is open; None if clients may return at any time.

        A client that was assigned or heard in a round is not assigned again in it.
        """
        return None

    def returns_in(self, client: int) -> int | None:
        """Return the round in which a client that had its turn may be assigned again: the open one, or a later one."""
        return self.round

    @abstractmethod
    def start(self, model: Tensor, clients: int, data_weights: Tensor | None = None) -> None:
        """Begin a run; may be called again, with the data weights, before any work is handed out.

        Args:
            model: Initial model w_0, float32 ``(d,)``; copied.
            clients: Number of clients N.
            data_weights: Each client's share of the objective, ``(N,)``; None for uniform. Only for algorithms that
                average over all clients; those that average over arrivals have no use for it.

        Raises:
            ValueError: The model is no finite float32 vector, or the hyper-parameters do not fit N.
        """
        ...

    @abstractmethod
    def slots(self) -> int:
        """Return how many clients are wanted now, beyond those already assigned."""
        ...

    @abstractmethod
    def assign(self, client: int, local: LocalPlan) -> LocalPlan:
        """Note that the client now has the current version; return its plan: the run's, changed if need be.

        Raises:
            ValueError: No such client; or, where there are rounds, its turn or the round's places are gone.
        """
        ...

    @abstractmethod
    def wants(self, client: int, version: int) -> bool:
        """Return whether an update of this client, made from this version, would count if it came now."""
        ...

    @abstractmethod
    def receive(self, update: Update) -> bool:
        """Take an update in; return whether there is a new version.

        An update that is not wanted changes nothing. Only metadata is looked at: linear algorithms take the
        vector as it is, so whoever made it has called ``check_vector``.

        Raises:
            ValueError: The metadata or the vector's length is wrong; nothing has changed.
        """
        ...

    @abstractmethod
    def drop(self, client: int, version: int) -> bool:
        """Give the client's slot up, since it was not heard in time; return whether there is a new version.

        Should its update come all the same, it counts while it is wanted.
        """
        ...

    def urgent(self) -> Sequence[int]:
        """Return the clients to ask now for what they have so far."""
        return ()

    def tick(self) -> bool:
        """Note that one ``period`` has passed, or the deadline of a round; return whether there is a new version."""
        return False

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return all that a restart needs, as a flat dict of tensors and plain values."""
        ...

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from ``state``, in place of ``start``; the hyper-parameters must be the same."""
        ...


def check_vector(vector: Tensor, length: int, max_norm: float | None = None) -> None:
    """Check what a client uploaded; called once, by whoever produces the vector.

    NaN and infinity show in the sum of the squares, which is far cheaper than a look at every entry.

    Args:
        vector: What should be float32 ``(length,)``.
        length: The model's d.
        max_norm: Largest Euclidean norm that is accepted; None for any finite one.

    Raises:
        ValueError: Wrong type or length, NaN, infinity, or too large a norm.
    """
    check_shape(vector, length)
    norm = math.sqrt(torch.dot(vector, vector).item())
    if not math.isfinite(norm):
        if vector.isnan().any():
            raise ValueError("the vector contains NaN")
        if vector.isinf().any():
            raise ValueError("the vector contains infinity")
        norm = torch.linalg.vector_norm(vector, dtype=torch.float64).item()
    if max_norm is not None and norm > max_norm:
        raise ValueError(f"the vector's norm is {norm:.6g}, allowed is at most {max_norm:.6g}")


def check_shape(vector: Tensor, length: int) -> None:
    """Raise ``ValueError`` unless ``vector`` is float32 ``(length,)``."""
    if vector.dtype != torch.float32 or vector.shape != (length,):
        shape = tuple(vector.shape)
        raise ValueError(f"the vector must be float32 of shape ({length},), got {vector.dtype} of shape {shape}")


def check_update(update: Update, *, clients: int, version: int, length: int) -> None:
    """Raise ``ValueError`` unless the update's metadata fits a run of N clients at this version."""
    check_client(update.client, clients)
    if not 0 <= update.version <= version:
        raise ValueError(f"version must be in 0 … {version}, got {update.version}")
    check_count("examples", update.examples)
    if not 0 <= update.steps <= LARGEST_COUNT:
        raise ValueError(f"steps must be in 0 … {LARGEST_COUNT}, got {update.steps}")
    check_not_negative("normaliser", update.normaliser)
    if isinstance(update.vector, Tensor):
        check_shape(update.vector, length)
    elif not hasattr(update.vector, "resolve"):
        raise ValueError(f"the vector must be a tensor or a promise of one, got {type(update.vector).__name__}")
