"""Error feedback: the next update carries the part that compression dropped."""

import numpy as np
from numpy.typing import NDArray
from offbeat_core.compression.base import Compressor, Encoded, decode


@np.errstate(over="ignore", invalid="ignore")  # ``encode`` refuses what is not finite
def compress_with_memory(
    compressor: Compressor, memory: NDArray[np.float32] | None, delta: NDArray[np.float32], seed: int
) -> tuple[NDArray[np.float32], NDArray[np.float32], Encoded]:
    """Return c, the client's new memory m, and c as bytes.

    The step is ``m ← m + Δ; c = C(m); m ← m − c``.

    Nothing is changed in place: the new memory replaces the old one only if the server counts the update.

    Seide et al., "1-Bit Stochastic Gradient Descent" (2014); Stich, Cordonnier and Jaggi, "Sparsified SGD with Memory"
    (2018), Algorithm 1; Karimireddy et al., "Error Feedback Fixes SignSGD and other Gradient Compression Schemes"
    (2019), Algorithm 2.

    Args:
        compressor: C, a contraction at this d; with any other compressor the memory grows without bound.
        memory: m, float32 ``(d,)``; None for zero.
        delta: Δ, float32 ``(d,)``.
        seed: As in ``Compressor.encode``.

    Raises:
        ValueError: C is not a contraction, the shapes differ, or m + Δ is not finite.
    """
    if not compressor.is_contraction(len(delta)):
        name = f"{compressor.name}({', '.join(f'{key}={value}' for key, value in compressor.parameters.items())})"
        raise ValueError(f"error feedback needs a contraction, which {name} is not for d = {len(delta)}")
    if memory is not None and memory.shape != delta.shape:
        raise ValueError(f"the memory must have the update's shape {delta.shape}, got {memory.shape}")
    total = delta if memory is None else memory + delta
    encoded = compressor.encode(total, seed)
    sent = decode(encoded)
    return sent, total - sent, encoded
