"""Compression from a table or from Python, checked and with all defaults."""

from typing import Any

from offbeat_core.errors import OffbeatError
from offbeat_core.number_checks import short

from offbeat.algorithms.components import Compression
from offbeat.compression import COMPRESSORS, Compressor
from offbeat.config.objects_by_name import make_by_name


def no_compression() -> None:
    """Send updates uncompressed, although ``[local]`` sets a compression."""


FACTORIES = {**COMPRESSORS, "none": no_compression}


def compression_from_table(key: str, table: Any) -> Compression | None:
    """Return the compression of a table such as ``{ name = "top_k", share = 0.01 }``."""
    return _compression(make_by_name(key, table, FACTORIES))


def check_compression(key: str, compression: Any) -> Compression | None:
    """Return the compression of a plan from Python, whose values may be of any type.

    Accepts a compressor, ``top_k(share=0.01)``, and parameters as a dict, too.
    """
    if compression is None:
        return None
    if not isinstance(compression, Compression | Compressor):
        raise OffbeatError(f"{key} = {short(compression)}: must be a Compression, or a compressor such as top_k(0.01)")
    try:
        parameters = dict(compression.parameters)
    except (TypeError, ValueError):
        raise OffbeatError(
            f'{key}.parameters = {short(compression.parameters)}: must be pairs, such as (("share", 0.01),)'
        ) from None
    return _compression(make_by_name(key, {**parameters, "name": compression.name}, COMPRESSORS))


def _compression(compressor: Compressor | None) -> Compression | None:
    return None if compressor is None else Compression(compressor.name, tuple(compressor.parameters.items()))
