"""Max-pooling: faster on a CPU, deterministic on a GPU.

PyTorch's kernel for images ``(n, channels, height, width)`` on a CPU compares one pair of values at a time and branches
on the result, which is as good as random: it takes a quarter of a small network's training. oneDNN's has the same bits.
The gradient of PyTorch's kernel on CUDA GPUs adds in any order, so torch refuses it where only deterministic operations
are allowed.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d
from torch.overrides import TorchFunctionMode

from offbeat.training.accelerator import Accelerator

Size = int | list[int] | tuple[int, ...]
"""For height and width; a single number stands for both."""


def fast_max_pooling(module: nn.Module) -> AbstractContextManager[Any]:
    """Return a context for a module's forward passes, which may be entered repeatedly.

    Without convolutions and pooling layers it does nothing, since interception costs time.
    """
    has_images = any(isinstance(layer, nn.Conv2d | nn.MaxPool2d) for layer in module.modules())
    return Replaced(max_pool2d, _pool_by_onednn) if has_images else nullcontext()


class Replaced(TorchFunctionMode):
    """A context in which a function of torch is computed in another way.

    Args:
        function: The function.
        other: Gets its arguments, and returns None for calls that it leaves to torch.
    """

    def __init__(self, function: Callable[..., Any], other: Callable[..., Tensor | None]) -> None:
        super().__init__()
        self._function = function
        self._other = other

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = self._other(*args, **kwargs or {}) if func is self._function else None
        return func(*args, **kwargs or {}) if result is None else result


class _Pooling(NamedTuple):
    """The arguments of ``max_pool2d``."""

    values: Tensor
    kernel_size: Size
    stride: Size | None = None
    padding: Size = 0
    dilation: Size = 1
    ceil_mode: bool = False
    return_indices: bool = False


def _pool_by_onednn(*args: Any, **kwargs: Any) -> Tensor | None:
    """Return the pooled values, or None where oneDNN has no equal kernel."""
    values, kernel_size, stride, padding, dilation, ceil_mode, return_indices = _Pooling(*args, **kwargs)
    stride = kernel_size if stride is None else stride
    # A RuntimeError, for instance within the user's own vmap, occurs again if it is not oneDNN's.
    with suppress(RuntimeError):
        if (
            return_indices
            or not np.all(np.asarray(stride) >= kernel_size)  # slopes of overlapping windows are added in another order
            or values.device.type != "cpu"
            or values.dtype != torch.float32
            or values.dim() != 4
            or not values.is_contiguous()  # a channels-last tensor has a fast kernel already
            or not torch.backends.mkldnn.is_available()
            or not np.all(2 * np.asarray(padding) <= kernel_size)  # an error, which oneDNN does not notice
            or not values.sum().isfinite()  # oneDNN ignores NaN
        ):
            return None
        return torch.mkldnn_max_pool2d(values.to_mkldnn(), kernel_size, stride, padding, dilation, ceil_mode).to_dense()
    return None


def deterministic_pooling(accelerator: Accelerator) -> AbstractContextManager[object]:
    """Return a context in which max-pooling is the maximum of each window.

    Only where windows do not overlap, fill the image, and have no padding or dilation; others are left alone. The
    context does nothing where none is needed.
    """
    is_needed = accelerator.is_cuda and accelerator.deterministic
    return Replaced(max_pool2d, _pool_by_windows) if is_needed else nullcontext()


def _pool_by_windows(*args: Any, **kwargs: Any) -> Tensor | None:
    """Return the pooled values; None where windows are not a division of the image."""
    values, kernel_size, stride, padding, dilation, _, return_indices = _Pooling(*args, **kwargs)
    height, width = pair(kernel_size)
    is_division = values.shape[-2] % height == values.shape[-1] % width == 0
    is_plain = pair(stride or kernel_size) == (height, width) and pair(padding) == (0, 0) and pair(dilation) == (1, 1)
    if return_indices or not is_plain or not is_division:
        return None
    windows = values.unflatten(-1, (-1, width)).unflatten(-3, (-1, height)).transpose(-2, -3)
    return windows.flatten(-2).max(dim=-1).values


def pair(size: Size) -> tuple[int, int]:
    """Return a size of torch for both dimensions of an image as two numbers."""
    sizes = (size,) if isinstance(size, int) else tuple(size)
    return sizes[0], sizes[-1]
