"""The arrays of an app's model: parameters of the run, and others."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError
from torch import Tensor, nn

Arrays = dict[str, NDArray[Any]]


class ModelArrays:
    """The entries of a module's ``state_dict``.

    Parameters with ``requires_grad`` make up the run's vector. All other entries, such as frozen parameters and
    BatchNorm's statistics, are never averaged. A parameter with two names is one of the vector, and has its value under
    both.

    Args:
        module: The module, with its initial values; it is not changed.

    Attributes:
        vector: The initial parameters, float32 ``(d,)``.
        shapes: The shapes of the parameters by name, in the order of the vector.

    Raises:
        OffbeatError: There is nothing to train, or a parameter is not float32.
    """

    def __init__(self, module: nn.Module) -> None:
        trained = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
        if not trained:
            raise OffbeatError("the model has nothing to train: no parameter has requires_grad")
        for name, parameter in trained.items():
            if parameter.dtype != torch.float32:
                raise OffbeatError(
                    f"the model's parameter {name} is {parameter.dtype}: convert the model with .float()"
                )
        self.shapes = {name: tuple(parameter.shape) for name, parameter in trained.items()}
        self.vector = torch.cat([parameter.detach().reshape(-1) for parameter in trained.values()]).cpu()
        names = {id(parameter): name for name, parameter in trained.items()}
        self._parameters = {  # by each of their names, their names in the vector
            name: names[id(parameter)]
            for name, parameter in module.named_parameters(remove_duplicate=False)
            if id(parameter) in names
        }
        # Copies, since the module goes on to be used.
        self._first: Arrays = {name: np.array(tensor.numpy(force=True)) for name, tensor in module.state_dict().items()}

    def named(self, vector: Tensor) -> Arrays:
        """Return a vector ``(d,)`` as arrays by name, in the parameters' shapes."""
        parts = vector.detach().cpu().split([int(np.prod(shape)) for shape in self.shapes.values()])
        pairs = zip(self.shapes.items(), parts, strict=True)
        return {name: part.numpy().reshape(shape) for (name, shape), part in pairs}

    def complete(self, parameters: Mapping[str, NDArray[Any]], own: Mapping[str, NDArray[Any]]) -> Arrays:
        """Return all arrays, in the order of the ``state_dict``.

        ``own`` has arrays that replace initial ones.
        """
        return {
            name: parameters[self._parameters[name]] if name in self._parameters else own.get(name, first)
            for name, first in self._first.items()
        }

    def own(self, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
        """Return those of the arrays that are not parameters of the run, in their shapes."""
        return {
            name: arrays[name]
            for name, first in self._first.items()
            if name not in self._parameters and name in arrays and arrays[name].shape == first.shape
        }
