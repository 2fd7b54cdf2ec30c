"""Compressors: a client's vector as the bytes that it sends, and back.

``top_k(share=0.01).encode(vector, seed)`` makes the bytes, ``decode`` turns them into an array again; ``wire_bytes``
tells their number before there is a vector.
"""

from offbeat_core.compression.compressor import (
    COMPRESSORS,
    Compressor,
    Encoded,
    compress_with_memory,
    decode,
    uncompressed_bytes,
    wire_bytes,
)
from offbeat_core.compression.quantised import Qsgd, Sign
from offbeat_core.compression.sparse import RandomK, TopK

# The names in formulas and experiment files.
top_k, random_k, qsgd, sign = TopK, RandomK, Qsgd, Sign

COMPRESSORS.update({compressor.name: compressor for compressor in (top_k, random_k, qsgd, sign)})

__all__ = [
    "COMPRESSORS",
    "Compressor",
    "Encoded",
    "TopK",
    "compress_with_memory",
    "decode",
    "qsgd",
    "random_k",
    "sign",
    "top_k",
    "uncompressed_bytes",
    "wire_bytes",
]
