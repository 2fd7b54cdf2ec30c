"""The current model, computed and checked when it is read."""

import math
import threading
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from offbeat.algorithms.components.buffers.aggregate import NotFiniteError, WrongStepError, check_finite, returned
from offbeat.algorithms.components.client_update import check_vector


class LazyModel:
    """A model w_t that steps on at once but is computed only when it is read.

    An algorithm knows from metadata alone that there is a new version, often before the updates behind it have
    been computed. So a step is recorded here and carried out, in order, when the model is read. A step to a model that
    is not finite is refused: the model stays as it was.

    w_0 is copied. A step of a Euclidean norm above ``max_step_norm`` is shortened and keeps its direction. One thread
    records steps; another one may read at the same time.

    Attributes:
        length: The number of parameters d.
        version: The version that was computed last.
        displacement: The sum of the Euclidean norms of all steps so far, Σ‖w_{t+1} − w_t‖.
        refused_steps: The reasons for refused steps, by the version that they began from.
    """

    def __init__(self, model: Tensor, max_step_norm: float = math.inf) -> None:
        if model.numel() == 0:
            raise ValueError("the model must have at least one parameter")
        self.length = model.numel()
        check_vector(model, self.length)
        self.version = 0
        self.displacement = 0.0
        self.refused_steps: dict[int, str] = {}
        self._reading = threading.RLock()
        self._last = math.inf  # the last version to compute
        self._model = model.detach().clone()
        self._max_step_norm = max_step_norm
        self._steps: deque[tuple[Callable[[Tensor], Tensor], int, Callable[..., Tensor] | None]] = deque()

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy has, too: all but the lock."""
        return {name: value for name, value in self.__dict__.items() if name != "_reading"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _reading=threading.RLock())

    def step(
        self, rule: Callable[[Tensor], Tensor], version: int = 0, method: Callable[..., Tensor] | None = None
    ) -> None:
        """Record that the model of ``version`` becomes ``rule(model)``, a new tensor.

        An error about a wrong tensor names the place of ``method``, which the rule calls.
        """
        self._steps.append((rule, version, method))

    def read(self) -> Tensor:
        """Return the current model, float32 ``(d,)``."""
        with self._reading:
            while self._steps and self._steps[0][1] < self._last:
                rule, version, method = self._steps[0]
                try:
                    proposed = self._checked(rule(self._model), method)
                    self.displacement += torch.dist(proposed, self._model).item()
                    self._model = proposed
                except NotFiniteError as error:
                    self.refused_steps[version] = str(error)
                self._steps.popleft()
                self.version = version + 1
            return self._model

    @contextmanager
    def at(self, version: int) -> Generator[bool]:
        """Read the model of a version in the context, also if later steps are recorded.

        It yields False if a later version was computed already. Other threads wait when they read.
        """
        with self._reading:
            if self.version > version:
                yield False
                return
            self._last = version
            try:
                yield True
            finally:
                self._last = math.inf

    def _checked(self, proposed: object, method: Callable[..., Tensor] | None) -> Tensor:
        needed = f"next_model must return float32 of shape ({self.length},)"
        if not isinstance(proposed, Tensor):
            raise WrongStepError(f"{needed}, {returned(proposed)}", method)
        if proposed.dtype != torch.float32 or proposed.shape != (self.length,):
            found = f"{str(proposed.dtype).removeprefix('torch.')} of shape {tuple(proposed.shape)}"
            raise WrongStepError(f"{needed}, it returned {found}", method)
        if self._max_step_norm < math.inf:
            step = proposed - self._model
            norm = torch.linalg.vector_norm(step, dtype=torch.float64).item()
            if norm > self._max_step_norm:
                proposed = self._model.add(step, alpha=self._max_step_norm / norm)
        check_finite(proposed, "the new model")
        return proposed
