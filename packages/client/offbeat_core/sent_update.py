"""The update that a client sends for a training result, and its memory."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from offbeat_core.compression import COMPRESSORS
from offbeat_core.compression.compressor import (
    Compressor,
    Encoded,
    compress_with_memory,
    decode,
    uncompressed_bytes,
    wire_bytes,
)
from offbeat_core.local_plan import Compression, LocalPlan, Payload


class Sent(NamedTuple):
    """An update as it is sent.

    Attributes:
        vector: The update as the server reads it, float32 ``(d,)``.
        memory: The client's memory once the update counts, ``(d,)``; None for none.
        encoded: The compressed update; None if the vector is sent as it is.
    """

    vector: NDArray[np.float32]
    memory: NDArray[np.float32] | None
    encoded: Encoded | None = None


@np.errstate(over="ignore", invalid="ignore")  # an update that is not finite is refused, here or by the receiver
def send(
    payload: Payload, vector: NDArray[np.float32], memory: NDArray[np.float32] | None, plan: LocalPlan, seed: int
) -> Sent:
    """Return the update for a training result.

    An array that is sent unchanged is not copied.

    A ``difference`` is C(Δ − m), with m the sum of the client's counted differences, which the server knows too:
    ``m ← m + C(Δ − m)``. Without compression the new m is Δ itself. With compression, the next difference contains the
    part that an update drops (Richtárik, Sokolov and Fatkhullin, "EF21", 2021). Other payloads have a memory only where
    ``plan.error_feedback`` asks for one: the part that compression has dropped so far.

    ``vector`` is the visit's delta, or its end point for ``params``, float32 ``(d,)``; ``ValueError`` if it is to be
    compressed and not finite, or too large. ``memory``, ``(d,)``, is None before the client's first counted update.
    """
    if is_plain(payload, plan):
        return Sent(vector, None)
    compressor = _compressor(plan.compression)
    if payload == "difference":
        change = vector if memory is None else vector - memory
        if compressor is None:
            return Sent(change, vector)
        encoded = compressor.encode(change, seed)
        change = decode(encoded)
        return Sent(change, change if memory is None else memory + change, encoded)
    assert compressor is not None
    if plan.error_feedback:
        return Sent(*compress_with_memory(compressor, memory, vector, seed))
    encoded = compressor.encode(vector, seed)
    return Sent(decode(encoded), None, encoded)


def is_plain(payload: Payload, plan: LocalPlan) -> bool:
    """Return whether the update is the training result itself, without a memory."""
    return plan.compression is None and payload != "difference"


def has_memory(payload: Payload, plan: LocalPlan, *, corrects_gradients: bool = False) -> bool:
    """Return whether a client has a memory from one visit to the next."""
    return payload == "difference" or plan.error_feedback or corrects_gradients


@np.errstate(over="ignore", invalid="ignore")
def control_variate(delta: NDArray[np.float32], offset: NDArray[np.float32], plan: LocalPlan) -> NDArray[np.float32]:
    """Return a client's memory, ``(d,)``, of a visit with corrected gradients.

    The memory is ``Δ / P − offset``. With the offset c − c_i it is SCAFFOLD's c_i⁺ = c_i − c + Δ / P, where P is the
    sum of the step sizes (Karimireddy et al., ICML 2020, option II). With a proximal term it is ``mu Δ − offset``. With
    the offset −h_i that is FedDyn's h_i⁺ = h_i + mu Δ (Acar et al., ICLR 2021).
    """
    return (delta * np.float32(plan.mu) if plan.mu else delta / np.float32(plan.path)) - offset


def upload_bytes(plan: LocalPlan, length: int) -> int:
    """Return the size of an update ``(length,)`` on the wire, in bytes."""
    compressor = _compressor(plan.compression)
    return uncompressed_bytes(length) if compressor is None else wire_bytes(compressor, length)


def check_sending(payload: Payload, plan: LocalPlan, length: int) -> None:
    """Raise ``ValueError`` unless updates ``(length,)`` can be compressed as planned."""
    compressor = _compressor(plan.compression)
    if compressor is None:
        return
    if payload == "params":
        raise ValueError("clients upload whole models here, which cannot be compressed: leave compression out")
    if payload == "difference" and plan.error_feedback:
        raise ValueError(
            "a difference makes up for what compression left out of the one before: leave error_feedback out"
        )
    if has_memory(payload, plan) and not compressor.is_contraction(length):
        what = "error_feedback" if plan.error_feedback else "the difference to a client's last update"
        raise ValueError(
            f"{what} needs a compressor that is a contraction, which {compressor.name} with these parameters is not "
            f"for {length} parameters: take top_k, sign, random_k with scaled = false, or qsgd with more bits"
        )


@lru_cache
def _compressor(compression: Compression | None) -> Compressor | None:
    return None if compression is None else COMPRESSORS[compression.name](**dict(compression.parameters))
