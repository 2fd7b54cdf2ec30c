"""What a client sends of what it has learnt, and what it remembers of it until its next visit."""

from functools import lru_cache

from torch import Tensor

from offbeat.algorithms.components import Compression, LocalPlan, Payload
from offbeat.compression import COMPRESSORS, Compressor, compress_with_memory, decode, uncompressed_bytes, wire_bytes


def send(
    payload: Payload, vector: Tensor, memory: Tensor | None, plan: LocalPlan, seed: int
) -> tuple[Tensor, Tensor | None]:
    """Return what the server gets, and the client's memory from then on if the server counts it.

    A ``difference`` is C(Δ − m), m being what the server has of the client's last counted update, to which it adds
    up: ``m ← m + C(Δ − m)``. Without compression that is Δ itself. With it, what is left out of one update is in the
    next difference (Richtárik, Sokolov and Fatkhullin, "EF21", 2021). Other payloads have a memory only where
    ``plan.error_feedback`` asks for one: what compression has left out so far.

    Args:
        payload: What the algorithm wants.
        vector: The visit's delta, or its end point for ``params``, float32 ``(d,)``, finite; left as it is.
        memory: The client's memory, ``(d,)``; None if nothing of it has counted yet.
        plan: The visit's plan.
        seed: What the compressor's random numbers depend on.

    Raises:
        ValueError: What is to be compressed is not finite, or too large.
    """
    compressor = _compressor(plan.compression)
    if payload == "difference":
        change = vector if memory is None else vector - memory
        if compressor is None:
            return change, vector
        change = decode(compressor.encode(change, seed))
        return change, change if memory is None else memory + change
    if compressor is None:
        return vector, None
    if plan.error_feedback:
        encoded, memory = compress_with_memory(compressor, memory, vector, seed)
        return decode(encoded), memory
    return decode(compressor.encode(vector, seed)), None


def has_memory(payload: Payload, plan: LocalPlan, *, corrects_gradients: bool = False) -> bool:
    """Return whether a client has to remember something from one visit to the next."""
    return payload == "difference" or plan.error_feedback or corrects_gradients


def control_variate(delta: Tensor, offset: Tensor, plan: LocalPlan) -> Tensor:
    """Return what a client remembers of a visit whose gradients were corrected: ``Δ / P − offset``, ``(d,)``.

    With the offset c − c_i it is SCAFFOLD's c_i⁺ = c_i − c + Δ / P, P the sum of the step sizes (Karimireddy et al.,
    ICML 2020, option II).
    """
    return delta / plan.path - offset


def upload_bytes(plan: LocalPlan, length: int) -> int:
    """Return how many bytes an update ``(length,)`` has on the wire."""
    compressor = _compressor(plan.compression)
    return uncompressed_bytes(length) if compressor is None else wire_bytes(compressor, length)


def check_sending(payload: Payload, plan: LocalPlan, length: int) -> None:
    """Check that updates ``(length,)`` of this kind can be compressed as planned.

    Raises:
        ValueError: They cannot.
    """
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
        name = plan.compression.name if plan.compression else ""
        what = "error_feedback" if plan.error_feedback else "the difference to a client's last update"
        raise ValueError(
            f"{what} needs a compressor that is a contraction, which {name} with these parameters is not for {length} "
            "parameters: take top_k, sign, random_k with scaled = false, or qsgd with more bits"
        )


@lru_cache
def _compressor(compression: Compression | None) -> Compressor | None:
    return None if compression is None else COMPRESSORS[compression.name](**dict(compression.parameters))
