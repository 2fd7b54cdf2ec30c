"""Rarer garbage collection while a simulation runs."""

import gc
from collections.abc import Generator
from contextlib import contextmanager

_YOUNG_OBJECTS = 5_000  # Python's own threshold is 700


@contextmanager
def rare_garbage_collection() -> Generator[None]:
    """Search for cyclic garbage less often.

    Visits leave no cycles, but at the usual threshold each search goes through the objects of all visits at work: with
    10,000 of them a tenth of the event loop's time. Where cycles are made, they are still found.
    """
    usual = young, *older = gc.get_threshold()
    gc.set_threshold(young and max(young, _YOUNG_OBJECTS), *older)  # 0 stands for never
    try:
        yield
    finally:
        gc.set_threshold(*usual)
