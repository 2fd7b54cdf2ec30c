"""Missing values in arrays that are not floats, where they are not NaN."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError

_NAMES = ("NAType", "NaTType", "NoneType")  # of pandas, which need not be installed, and Python


def refuse_missing(values: NDArray[Any], where: str, *, is_batch: bool) -> None:
    """Raise ``OffbeatError`` for a masked value, or for None, NaN or NA among objects.

    ``where`` is the array's place; in a batch the example is named, too.
    """
    if isinstance(values, np.ma.MaskedArray):
        missing = np.ma.getmaskarray(values)
    elif values.dtype == object:
        missing = np.vectorize(_is_missing, otypes=[bool])(values)
    else:
        return
    if missing.any():
        first = np.unravel_index(int(missing.argmax()), missing.shape)
        what = "a masked value" if isinstance(values, np.ma.MaskedArray) else f"the missing value {values[first]!r}"
        example = f", example {first[0]}" if is_batch and first else ""
        raise OffbeatError(f"{where}{example}: has {what}: remove the example, or replace the value")


def _is_missing(value: Any) -> bool:
    return type(value).__name__ in _NAMES or (isinstance(value, float) and value != value)
