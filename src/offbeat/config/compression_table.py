"""How updates are compressed: a table of a file, or what a plan from Python says, checked and with its defaults."""

from typing import Any

from offbeat.algorithms.components import Compression
from offbeat.compression import COMPRESSORS, Compressor
from offbeat.config.objects_by_name import make_by_name
from offbeat.config.validation_errors import short
from offbeat.errors import OffbeatError


def no_compression() -> None:
    """Updates travel whole: what an algorithm says that does without the compression of all others."""


MAKERS = {**COMPRESSORS, "none": no_compression}


def compression_from_table(key: str, table: Any) -> Compression | None:
    """Return what a table such as ``{ name = "top_k", share = 0.01 }`` stands for.

    Raises:
        OffbeatError: There is no such compressor or parameter, or a value is out of range; begins with the key.
    """
    made: Compressor | None = make_by_name(key, table, MAKERS)
    return None if made is None else Compression(made.name, tuple(made.parameters.items()))


def checked(key: str, compression: Any) -> Compression | None:
    """Return the compression of a plan that was written in Python, whose parts are of any type until here.

    A compressor itself, ``top_k(share=0.01)``, and parameters as a dict mean the same.

    Raises:
        OffbeatError: As for a table.
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
    made: Compressor = make_by_name(key, {**parameters, "name": compression.name}, COMPRESSORS)
    return Compression(made.name, tuple(made.parameters.items()))
