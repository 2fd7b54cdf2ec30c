"""A module whose trainable parameters are one flat float32 vector."""

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase  # pyright: ignore[reportPrivateUsage]

from offbeat.errors import OffbeatError


class FlatModel:
    """A module, and its ``d`` trainable parameters as one vector in ``named_parameters`` order.

    Only parameters with ``requires_grad`` are in the vector. The module's parameters and their gradients become
    views of ``vector`` and ``gradient``, so writing there writes into the module.

    Attributes:
        module: The module itself.
        vector: The parameters, float32 ``(d,)``.
        gradient: Where ``backward`` adds the gradient, float32 ``(d,)``.

    Raises:
        OffbeatError: The module cannot be trained this way: BatchNorm statistics, integer buffers, parameters that
            are not float32, or none to train. Statistics and counters of different clients have no meaningful
            average.
    """

    def __init__(self, module: nn.Module) -> None:
        _refuse_buffers(module)
        parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
        if not parameters:
            raise OffbeatError("the model has nothing to train: no parameter has requires_grad")
        for name, parameter in parameters.items():
            if parameter.dtype != torch.float32:
                raise OffbeatError(
                    f"the model's parameter {name} is {parameter.dtype}: convert the model with .float()"
                )
        self.module = module
        self._shapes = {name: parameter.shape for name, parameter in parameters.items()}
        self.vector = torch.cat([parameter.detach().reshape(-1) for parameter in parameters.values()])
        self.gradient = torch.zeros_like(self.vector)
        for parameter, values, slopes in zip(
            parameters.values(), self._views(self.vector), self._views(self.gradient), strict=True
        ):
            parameter.data = values
            parameter.grad = slopes
        self._buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]

    def load(self, vector: Tensor) -> None:
        """Take over the parameters ``(d,)``, and put the buffers back to what they were at first.

        Some layers write into their buffers; without this the next client would start from what the last one left.
        """
        self.vector.copy_(vector)
        for buffer, first in self._buffers:
            buffer.copy_(first)

    def named(self, vector: Tensor) -> dict[str, Tensor]:
        """Return a vector ``(d,)`` as tensors by parameter name, each of its parameter's shape."""
        return dict(zip(self._shapes, self._views(vector), strict=True))

    def _views(self, vector: Tensor) -> list[Tensor]:
        parts = vector.split([shape.numel() for shape in self._shapes.values()])
        return [part.view(shape) for part, shape in zip(parts, self._shapes.values(), strict=True)]


def _refuse_buffers(module: nn.Module) -> None:
    for name, layer in module.named_modules():
        if isinstance(layer, _NormBase) and layer.track_running_stats:
            kind = type(layer).__name__
            raise OffbeatError(f"the model's layer {name or kind} keeps {kind} statistics: use GroupNorm in its place")
    for name in module.state_dict():
        buffer = dict(module.named_buffers()).get(name)
        if buffer is not None and not buffer.is_floating_point():
            raise OffbeatError(
                f"the model's buffer {name} holds {buffer.dtype}, which cannot be averaged: "
                "make it persistent=False if it is a constant"
            )
