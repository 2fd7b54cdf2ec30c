"""Compressors: a client's vector as the bytes that it sends, and back.

``top_k(share=0.01).encode(vector, seed)`` makes the bytes, ``decode`` turns them into a tensor again; ``wire_bytes``
tells their number before there is a vector.
"""

import torch
from offbeat_core.compression import (
    COMPRESSORS,
    Compressor,
    Encoded,
    TopK,
    qsgd,
    random_k,
    sign,
    top_k,
    uncompressed_bytes,
    wire_bytes,
)
from offbeat_core.compression import decode as decode_array
from torch import Tensor

__all__ = [
    "COMPRESSORS",
    "Compressor",
    "Encoded",
    "TopK",
    "decode",
    "qsgd",
    "random_k",
    "sign",
    "top_k",
    "uncompressed_bytes",
    "wire_bytes",
]


def decode(encoded: Encoded) -> Tensor:
    """Return the vector C(v), float32 ``(d,)``.

    Raises:
        ValueError: The payload is malformed; one from ``encode`` or ``from_bytes`` never is.
    """
    return torch.from_numpy(decode_array(encoded))
