"""Max-pooling whose gradient has the same bits each time, for GPUs.

The gradient of PyTorch's kernel on CUDA GPUs adds in any order, so torch refuses it where only deterministic operations
are allowed.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import Tensor
from torch.nn.functional import max_pool2d
from torch.overrides import TorchFunctionMode

from offbeat.training.accelerator import Accelerator

Size = int | Sequence[int]


def deterministic_pooling(accelerator: Accelerator) -> AbstractContextManager[object]:
    """Return a context for forward passes; it does nothing where none is needed."""
    return DeterministicPooling() if accelerator.is_cuda and accelerator.deterministic else nullcontext()


class DeterministicPooling(TorchFunctionMode):
    """Computes ``torch.nn.functional.max_pool2d`` as the maximum of each window.

    Only where windows do not overlap, fill the image, and have no padding or dilation; others are left alone.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        pooled = _pool(*args, **kwargs or {}) if func is max_pool2d else None
        return func(*args, **kwargs or {}) if pooled is None else pooled


def _pool(
    values: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | None:
    """Return the pooled values; None where windows are not a division of the image."""
    height, width = _pair(kernel_size)
    is_division = values.shape[-2] % height == values.shape[-1] % width == 0
    is_plain = (
        _pair(stride or kernel_size) == (height, width) and _pair(padding) == (0, 0) and _pair(dilation) == (1, 1)
    )
    if return_indices or not is_plain or not is_division:
        return None
    windows = values.unflatten(-1, (-1, width)).unflatten(-3, (-1, height)).transpose(-2, -3)
    return windows.flatten(-2).max(dim=-1).values


def _pair(size: Size) -> tuple[int, int]:
    sizes = (size,) if isinstance(size, int) else tuple(size)
    return sizes[0], sizes[-1]
