"""From a trained model to what travels: the vector, its bytes, and what is announced of them."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from offbeat.algorithms.components import Payload, check_vector
from offbeat.algorithms.components.checks import LARGEST_COUNT
from offbeat.compression import COMPRESSORS, compress_with_memory, decode
from offbeat.errors import OffbeatError
from offbeat.randomness import Purpose, integer
from offbeat.service.client.contract import Fitted, Visit
from offbeat.training.sending import send
from offbeat.training.trainers.trainer import normaliser

_LARGEST_LOSS = torch.finfo(torch.float32).max


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """An update, ready to be written.

    Attributes:
        body: The vector ``(d,)``, or the bytes of a compressor.
        memory: What the client will remember of it if it counts, ``(d,)``; None for nothing.
    """

    body: Tensor | bytes
    memory: Tensor | None

    def write(self, path: Path) -> None:
        """Write the body as it travels."""
        if isinstance(self.body, bytes):
            path.write_bytes(self.body)
        else:
            save_file({"update": self.body}, path)


def check_fitted(result: Any, start: Mapping[str, Tensor], visit: Visit) -> Fitted:
    """Return what a user's ``fit`` returned, with the number of steps and the normaliser filled in.

    Raises:
        OffbeatError: It is not what ``fit`` should return.
    """
    if isinstance(result, tuple) and len(result) == 2:
        result = Fitted(*result)
    model: Any = result.model if isinstance(result, Fitted) else None
    if not isinstance(result, Fitted) or not isinstance(model, Mapping):
        raise OffbeatError(f"fit must return (model by name, examples) or a Fitted, got {type(result).__name__}")
    for name, first in start.items():
        last = result.model.get(name)
        if not isinstance(last, Tensor) or last.shape != first.shape:
            got = tuple(last.shape) if isinstance(last, Tensor) else type(last).__name__
            raise OffbeatError(
                f"the model that fit returned needs {name} as a tensor of shape {tuple(first.shape)}, got {got}"
            )
    steps = visit.plan.steps if result.steps is None else result.steps
    for what, number, most in (("examples", result.examples, LARGEST_COUNT), ("steps", steps, visit.plan.steps)):
        if type(number) is not int or not 1 <= number <= most:
            raise OffbeatError(f"the {what} that fit returned must be a whole number in 1 … {most}, got {number!r}")
    total = normaliser(visit.plan.prefix(steps)) if result.normaliser is None else result.normaliser
    loss = result.loss
    if visit.needs_loss and not (isinstance(loss, (int, float)) and abs(loss) <= _LARGEST_LOSS):
        raise OffbeatError(
            f"this run needs the mean training loss of each visit: return Fitted(…, loss=…) with a finite number, "
            f"got {loss!r}"
        )
    return Fitted(result.model, result.examples, steps, float(total), loss)


def result_vector(payload: Payload, start: Mapping[str, Tensor], end: Mapping[str, Tensor]) -> Tensor:
    """Return start − end, or for ``params`` the end, as one vector ``(d,)`` in the order of ``start``."""
    vector = torch.empty(sum(first.numel() for first in start.values()))
    parts = vector.split([first.numel() for first in start.values()])
    for part, (name, first) in zip(parts, start.items(), strict=True):
        last = end[name].detach().to("cpu", torch.float32)
        if payload == "params":
            part.view(first.shape).copy_(last)
        else:
            torch.sub(first, last, out=part.view(first.shape))
    return vector


def by_name(vector: Tensor, model: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a vector ``(d,)`` as tensors by name, in the order and the shapes of a model's."""
    parts = vector.split([tensor.numel() for tensor in model.values()])
    return {name: part.view(tensor.shape) for part, (name, tensor) in zip(parts, model.items(), strict=True)}


def make_update(vector: Tensor, memory: Tensor | None, visit: Visit) -> Outcome:
    """Return what travels of a visit's result, as the simulator has it: see ``offbeat.training.sending.send``.

    Args:
        vector: From ``result_vector``; handed over.
        memory: What the client remembers of its last counted update, ``(d,)``; None for nothing.
        visit: The visit.

    Raises:
        OffbeatError: The vector, or what becomes of it, is not finite.
    """
    plan = visit.plan
    try:
        check_vector(vector, visit.length)
        if plan.compression is None:
            sent, memory = send(visit.payload, vector, memory, plan, seed=0)
            check_vector(sent, visit.length)
            return Outcome(sent, memory)
        compressor = COMPRESSORS[plan.compression.name](**dict(plan.compression.parameters))
        seed = integer(visit.seed, Purpose.COMPRESSION, visit.client, visit.number)
        if visit.payload == "difference":
            encoded = compressor.encode(vector if memory is None else vector - memory, seed)
            change = decode(encoded)
            return Outcome(encoded.to_bytes(), change if memory is None else memory + change)
        if plan.error_feedback:
            encoded, memory = compress_with_memory(compressor, memory, vector, seed)
            return Outcome(encoded.to_bytes(), memory)
        return Outcome(compressor.encode(vector, seed).to_bytes(), None)
    except ValueError as error:
        raise OffbeatError(
            f"training diverged: visit {visit.number}, from version {visit.version}: {error}; "
            "lower the plan's lr or set its clip_norm"
        ) from None


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
