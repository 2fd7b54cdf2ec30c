"""A module whose trainable parameters are one flat float32 vector."""

from collections.abc import Iterator, Mapping
from typing import Literal

import torch
from offbeat_core.errors import OffbeatError, setting
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase  # pyright: ignore[reportPrivateUsage]
from torch.nn.parameter import is_lazy


class FlatModel:
    """A module whose ``d`` trainable parameters are one vector.

    Only parameters with ``requires_grad`` are in the vector, in the order of ``named_parameters``. The module's
    parameters and gradients become views of ``vector`` and ``gradient``, so writing there writes into the module.

    Args:
        module: The module; it is changed.
        batch_norm: Treatment of layers with running statistics, such as BatchNorm; statistics of different clients have
            no meaningful average. ``"refuse"`` is an error. ``"local"`` keeps them local, like SiloBN (Andreux et al.,
            "Siloed Federated Learning for Multi-Centric Histopathology Datasets", 2020): only the layer's scale and
            shift are in the vector. The layer has no running statistics; it normalises by the current minibatch, of the
            client in training and of the test set in evaluation, which may need more than one example.

    Raises:
        OffbeatError: The module has running statistics, nothing to train, or parameters to train that are not dense
            float32, share memory, have no shape yet or lie on several devices.
    """

    def __init__(self, module: nn.Module, batch_norm: Literal["refuse", "local"] = "refuse") -> None:
        if batch_norm == "refuse":
            refuse_running_statistics(module, f'set {setting("model.batch_norm")} = "local"')
        for _, layer in _layers_with_statistics(module):
            _drop_running_statistics(layer)
        for layer in module.modules():
            if isinstance(layer, nn.Embedding | nn.EmbeddingBag):
                layer.sparse = False  # of its gradient, which is added to a dense vector
        parameters = check_parameters(module)
        devices = {parameter.device: name for name, parameter in parameters.items()}
        if len(devices) > 1:
            found = " and ".join(f"{name} on {device}" for device, name in devices.items())
            raise OffbeatError(f"the model's parameters lie on several devices, {found}: make all on one")
        self.module = module
        self._shapes = {name: parameter.shape for name, parameter in parameters.items()}
        self.vector = torch.cat([parameter.detach().reshape(-1) for parameter in parameters.values()])
        self.gradient = torch.zeros_like(self.vector)  # to which backward adds
        self._ties = list(zip(parameters.values(), self._views(self.vector), self._views(self.gradient), strict=True))
        self._tie()
        # named_buffers() would leave out buffers that are None and filled later.
        self._buffers = [
            (layer, name, buffer, None if buffer is None or _is_expanded(buffer) else buffer.clone())
            for layer in module.modules()
            for name, buffer in layer._buffers.items()  # pyright: ignore[reportPrivateUsage]
        ]

    def to(self, device: torch.device) -> "FlatModel":
        """Return the model on a device: this one if it is there, else the module moves.

        Raises ``OffbeatError`` if a parameter or a buffer has no values.
        """
        for name, tensor in [*self.module.named_parameters(), *self.module.named_buffers()]:
            if tensor.is_meta:
                raise OffbeatError(f"the model's {name} is on torch's device meta, without values: make it on the CPU")
        if self.vector.device == device:
            return self
        self.load(self.vector)  # resets the buffers, of which the new model takes copies
        return FlatModel(self.module.to(device))

    def load(self, vector: Tensor) -> None:
        """Copy the parameters ``(d,)`` into the model, and reset its buffers.

        Buffers get their initial values: some layers write into them, which must not reach the next client. Tensors
        that are plain attributes of a layer are not reset.
        """
        self._tie()
        self.vector.copy_(vector)
        for layer, name, buffer, first in self._buffers:
            if buffer is not None and first is not None:
                with torch.no_grad():
                    if buffer.shape != first.shape:  # a layer has resized it in place
                        buffer.resize_as_(first)
                    buffer.copy_(first)
            # A layer may also have replaced the buffer by another tensor.
            setattr(layer, name, buffer)

    @property
    def parameters(self) -> list[nn.Parameter]:
        """The module's parameters that are in the vector."""
        return [parameter for parameter, _, _ in self._ties]

    def adopt(self) -> None:
        """Copy values and gradients that the module has replaced into the vectors.

        A layer may assign ``weight.data``, as one with a largest norm does, or set gradients to None. An optimiser of
        torch goes on with what it finds there.
        """
        is_replaced = False
        for parameter, values, slopes in self._ties:
            if parameter.data_ptr() != values.data_ptr():
                values.copy_(parameter.detach())
                is_replaced = True
            if parameter.grad is not slopes:
                slopes.zero_() if parameter.grad is None else slopes.copy_(parameter.grad.to_dense())
                is_replaced = True
        if is_replaced:
            self._tie()

    def _tie(self) -> None:
        for parameter, values, slopes in self._ties:
            parameter.data = values
            parameter.grad = slopes

    def named(self, vector: Tensor) -> dict[str, Tensor]:
        """Return a vector ``(d,)`` as tensors by name, in the parameters' shapes."""
        return dict(zip(self._shapes, self._views(vector), strict=True))

    def saved(self, vector: Tensor) -> dict[str, Tensor]:
        """Return copies by all names of parameters, as ``load_state_dict`` needs them.

        A parameter that several layers share has several names.
        """
        views = dict(zip(map(id, self.parameters), self._views(vector), strict=True))
        names = self.module.named_parameters(remove_duplicate=False)
        return {name: views[id(parameter)].clone() for name, parameter in names if id(parameter) in views}

    def stacked(self, vectors: Tensor) -> dict[str, Tensor]:
        """Return the rows of ``(n, d)`` as views ``(n, …)`` by parameter name."""
        parts = vectors.split([shape.numel() for shape in self._shapes.values()], dim=1)
        return {
            name: part.unflatten(1, shape or (1,)) if shape else part.squeeze(1)
            for (name, shape), part in zip(self._shapes.items(), parts, strict=True)
        }

    def _views(self, vector: Tensor) -> list[Tensor]:
        parts = vector.split([shape.numel() for shape in self._shapes.values()])
        return [part.view(shape) for part, shape in zip(parts, self._shapes.values(), strict=True)]


def check_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters to train by name.

    Raises ``OffbeatError`` if there are none, or if a parameter is not dense float32, is not initialised yet or shares
    its memory.
    """
    parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
    if not parameters:
        raise OffbeatError("the model has nothing to train: no parameter has requires_grad")
    for name, parameter in parameters.items():
        if is_lazy(parameter):
            raise OffbeatError(f"the model's parameter {name} has no shape yet: give its layer the number of inputs")
        if parameter.dtype != torch.float32:
            remedy = (
                "make its real and imaginary parts two parameters, and join them by torch.complex"
                if parameter.is_complex()
                else "convert the model with .float()"
            )
            raise OffbeatError(f"the model's parameter {name} is {parameter.dtype}: {remedy}")
        if parameter.layout != torch.strided:
            raise OffbeatError(f"the model's parameter {name} is {parameter.layout}: make it dense, with .to_dense()")
    _refuse_shared_memory(parameters)
    return parameters


def _refuse_shared_memory(parameters: Mapping[str, nn.Parameter]) -> None:
    """Refuse two parameters that are one tensor's memory.

    Only a parameter that is one object in both layers stays shared when it is copied.
    """
    names: dict[int, str] = {}
    for name, parameter in parameters.items():
        other = names.setdefault(parameter.data_ptr(), name) if parameter.data_ptr() else name
        if other != name:
            raise OffbeatError(
                f"the model's parameters {other} and {name} share their memory, but are two: make them one, by "
                "assigning the parameter itself and not its .data"
            )


def refuse_running_statistics(module: nn.Module, remedy: str) -> None:
    """Raise ``OffbeatError``, with a remedy, if a layer keeps running statistics."""
    for name, layer in _layers_with_statistics(module):
        kind = type(layer).__name__
        raise OffbeatError(
            f"the model's layer {name or kind} keeps {kind} statistics: use GroupNorm instead, or {remedy}"
        )


def _layers_with_statistics(module: nn.Module) -> Iterator[tuple[str, _NormBase]]:
    for name, layer in module.named_modules():
        if isinstance(layer, _NormBase) and layer.track_running_stats:
            yield name, layer


def _drop_running_statistics(layer: _NormBase) -> None:
    layer.track_running_stats = False
    layer.running_mean = layer.running_var = layer.num_batches_tracked = None


def _is_expanded(tensor: Tensor) -> bool:
    """Return whether elements share memory: such a tensor cannot be written."""
    return tensor.layout == torch.strided and any(
        size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
