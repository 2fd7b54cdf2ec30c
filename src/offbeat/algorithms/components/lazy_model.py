"""The current model, computed when it is read."""

from collections import deque
from collections.abc import Callable

from torch import Tensor

from offbeat.algorithms.components.update import check_vector


class LazyModel:
    """A model w_t that steps on at once but is computed only when it is read.

    An algorithm knows from metadata alone that there is a new version, often before the updates behind it have
    been computed. So a step is recorded here and carried out, in order, when the model is read.

    Attributes:
        length: The number of parameters d.
    """

    def __init__(self, model: Tensor) -> None:
        if model.numel() == 0:
            raise ValueError("the model must have at least one parameter")
        self.length = model.numel()
        check_vector(model, self.length)
        self._model = model.detach().clone()
        self._steps: deque[Callable[[Tensor], Tensor]] = deque()

    def step(self, rule: Callable[[Tensor], Tensor]) -> None:
        """Record that the next model is ``rule(this model)``.

        The rule returns a new tensor.
        """
        self._steps.append(rule)

    def read(self) -> Tensor:
        """Return the current model, float32 ``(d,)``."""
        while self._steps:
            self._model = self._steps[0](self._model)
            self._steps.popleft()
        return self._model
