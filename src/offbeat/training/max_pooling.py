"""Max-pooling by oneDNN, with the same bits as PyTorch's own.

PyTorch's kernel for images ``(n, channels, height, width)`` compares one pair of values at a time and branches on the
result, which is as good as random: it takes a quarter of a small network's training.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d
from torch.overrides import TorchFunctionMode

Size = int | list[int] | tuple[int, ...]


def fast_max_pooling(module: nn.Module) -> AbstractContextManager[Any]:
    """Return a context for a module's forward passes, which may be entered repeatedly.

    Without convolutions and pooling layers it does nothing, since interception costs time.
    """
    has_images = any(isinstance(layer, nn.Conv2d | nn.MaxPool2d) for layer in module.modules())
    return _FastMaxPooling() if has_images else nullcontext()


class _FastMaxPooling(TorchFunctionMode):
    """Max-pooling of images by oneDNN, where this does not change the result."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is max_pool2d:
            # A RuntimeError, for instance within the user's own vmap, occurs again if it is not oneDNN's.
            with suppress(RuntimeError):
                pooled = _pool(*args, **kwargs or {})
                if pooled is not None:
                    return pooled
        return func(*args, **kwargs or {})


def _pool(
    values: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | None:
    """Return the pooled values, or None where oneDNN has no equal kernel."""
    stride = kernel_size if stride is None else stride
    if (
        return_indices
        or not np.all(np.asarray(stride) >= kernel_size)  # overlapping windows' gradients are added in another order
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
