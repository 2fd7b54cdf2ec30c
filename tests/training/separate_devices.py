"""A second device for tests: torch's ``meta`` device, whose tensors hold no data.

It takes the place of a GPU where there is none: code that creates a tensor on the wrong device, mixes devices, or reads
an entry, which makes a GPU wait, fails here.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from offbeat.training.accelerator import Accelerator

META = Accelerator(torch.device("meta"))


class SeparateDevices(TorchDispatchMode):
    """Refuses operations on tensors of several devices, except copies from one to the other."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor) and leaf.ndim]
        if len({tensor.device for tensor in tensors}) > 1 and func is not torch.ops.aten.copy_.default:
            raise AssertionError(f"{func} mixes devices: {[(tensor.device, tensor.shape) for tensor in tensors]}")
        return func(*args, **(kwargs or {}))
