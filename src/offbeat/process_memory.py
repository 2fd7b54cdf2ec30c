"""Memory: failed allocations, and rarer garbage collection."""

import gc
from collections.abc import Generator
from contextlib import contextmanager

# What PyTorch raises as a RuntimeError: by the allocators of the CPU and of CUDA, and before they are called.
_OUT_OF_MEMORY = ("can't allocate memory", "out of memory", "Storage size calculation overflowed")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an allocation failed, in Python, NumPy or PyTorch."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in _OUT_OF_MEMORY)
    )


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
