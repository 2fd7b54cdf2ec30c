"""Failed allocations of memory."""

# What PyTorch raises as a RuntimeError: by the allocators of the CPU and of CUDA, and before they are called.
_OUT_OF_MEMORY = ("can't allocate memory", "out of memory", "Storage size calculation overflowed")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an allocation failed, in Python, NumPy or PyTorch."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in _OUT_OF_MEMORY)
    )
