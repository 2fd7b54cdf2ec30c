"""A client's update: its vector, the client's report, and the checks of both."""

import math
from typing import NamedTuple, NotRequired, Protocol, TypedDict

import torch
from offbeat_core.local_plan import LocalPlan
from offbeat_core.number_checks import LARGEST_COUNT, check_count, check_not_negative
from torch import Tensor


class UpdateRefusedError(ValueError):
    """A well-formed update must not count: it is acknowledged as unused."""


class Promise(Protocol):
    """A vector that is computed when it is first needed.

    Examples:
        >>> class Later:
        ...     def resolve(self):
        ...         return torch.zeros(2)
        >>> update = Update(client=0, version=0, vector=Later(), examples=80, steps=5, normaliser=5.0)
    """

    def resolve(self) -> Tensor:
        """Return the vector, float32 ``(d,)``."""
        ...


Vector = Tensor | Promise


def resolve(vector: Vector, length: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return the tensor ``(length,)`` of a vector, without autograd graph."""
    tensor = vector if isinstance(vector, Tensor) else vector.resolve()
    check_shape(tensor, length, dtype)
    return tensor.detach() if tensor.requires_grad else tensor


class Report(TypedDict):
    """A client's report with its update; the entries are those of ``Update``."""

    examples: int
    steps: int
    normaliser: float
    since: NotRequired[int | None]
    step_seconds: NotRequired[float | None]
    upload_seconds: NotRequired[float | None]
    loss: NotRequired[float | None]
    share: NotRequired[bytes | None]


class Update(NamedTuple):
    """The upload of a client at the end of a visit.

    Attributes:
        client: 0 ≤ client < N.
        version: The version of the model that the client started from.
        vector: float32 ``(d,)``, of the kind that the algorithm's ``payload`` says; a tensor or a promise of one. Its
            maker must not change a tensor afterwards.
        examples: Examples that the client holds, 1 ≤ n_i < 2³¹.
        steps: Local steps taken, 0 ≤ steps < 2³¹ (fewer than planned if the visit was cut short).
        normaliser: FedNova's a_i ≥ 0; ``steps`` for plain SGD.
        base: The vector that the client started from; only where the algorithm says ``needs_base``.
        since: The version of the client's last counted update, to which a difference refers.
        step_seconds: Measured seconds a local step.
        upload_seconds: Measured seconds for an uncompressed upload.
        loss: The visit's mean training loss; only where the algorithm says ``needs_loss``.
        plan: The plan of the client's assignment.
        share: The sealed seed of the mask on the vector, which is int32 then; None for a vector in the clear.

    Examples:
        >>> update = Update(
        ...     client=0, version=3, vector=torch.tensor([0.5, -1.0]), examples=80, steps=5, normaliser=5.0
        ... )
        >>> update.vector.norm() < 2
        tensor(True)
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
    loss: float | None = None
    plan: LocalPlan | None = None
    share: bytes | None = None


def check_vector(vector: Tensor, length: int, max_norm: float | None = None) -> None:
    """Check a client's upload; called once, by the producer of the vector.

    NaN and infinity show in the sum of the squares, which is far cheaper than a look at every entry.

    Args:
        vector: Should be float32 ``(length,)``.
        length: The model's d.
        max_norm: Largest Euclidean norm that is accepted; None for any finite one.

    Raises:
        ValueError: Wrong type or length, NaN, infinity, or too large a norm.

    Examples:
        >>> check_vector(torch.tensor([3.0, 4.0]), length=2, max_norm=1.0)
        Traceback (most recent call last):
        ValueError: the vector's norm is 5, allowed is at most 1
    """
    check_shape(vector, length)
    norm = math.sqrt(vector.dot(vector).item())
    if not math.isfinite(norm):
        if vector.isnan().any():
            raise ValueError("the vector contains NaN")
        if vector.isinf().any():
            raise ValueError("the vector contains infinity")
        norm = torch.linalg.vector_norm(vector, dtype=torch.float64).item()
    if max_norm is not None and norm > max_norm:
        raise ValueError(f"the vector's norm is {norm:.6g}, allowed is at most {max_norm:.6g}")


def check_client(client: int, clients: int) -> None:
    """Raise ``ValueError`` unless 0 ≤ client < clients."""
    if not 0 <= client < clients:
        raise ValueError(f"client must be in 0 … {clients - 1}, got {client}")


def check_shape(vector: Tensor, length: int, dtype: torch.dtype = torch.float32) -> None:
    """Raise ``ValueError`` unless the vector has this type and this length."""
    if vector.dtype != dtype or vector.shape != (length,):
        kind, shape = str(dtype).removeprefix("torch."), tuple(vector.shape)
        raise ValueError(f"the vector must be {kind} of shape ({length},), got {vector.dtype} of shape {shape}")


def check_update(update: Update, *, clients: int, version: int, length: int) -> None:
    """Raise ``ValueError`` unless the update's metadata fits the run at ``version``."""
    check_client(update.client, clients)
    if not 0 <= update.version <= version:
        raise ValueError(f"version must be in 0 … {version}, got {update.version}")
    check_count("examples", update.examples)
    if not 0 <= update.steps <= LARGEST_COUNT:
        raise ValueError(f"steps must be in 0 … {LARGEST_COUNT}, got {update.steps}")
    check_not_negative("normaliser", update.normaliser)
    if isinstance(update.vector, Tensor):
        check_shape(update.vector, length, torch.float32 if update.share is None else torch.int32)
    elif not hasattr(update.vector, "resolve"):
        raise ValueError(f"the vector must be a tensor or a promise of one, got {type(update.vector).__name__}")
