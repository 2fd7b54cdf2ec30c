"""The metric that ends a run, or decides which version is best."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple


class BestMetric(NamedTuple):
    """The metric that decides which version is best."""

    name: str  # among the values of an evaluation
    lower_is_better: bool


class EarlyStop:
    """Ends a run at a target, or once a metric has not improved for some evaluations.

    Only the first evaluation of a version counts, and only where the metric is a finite number.

    Args:
        metric: The metric's name among the values of an evaluation.
        lower_is_better: Whether lower values are better.
        target: The value at which the run ends; None for none.
        patience: After how many evaluations in a row without a better value the run ends; None for any number.

    Attributes:
        is_reached: True once the run is to end.
    """

    def __init__(
        self, metric: str, *, lower_is_better: bool, target: float | None = None, patience: int | None = None
    ) -> None:
        self.is_reached = False
        self._metric = metric
        self._sign = -1.0 if lower_is_better else 1.0
        self._target = math.inf if target is None else self._sign * target
        self._patience = math.inf if patience is None else patience
        self._best: float | None = None  # with the sign by which higher is better
        self._without_better = 0
        self._version = -1

    def note(self, version: int, values: Mapping[str, Any]) -> None:
        """Take an evaluation of a version: its loss and metrics by name."""
        value = values.get(self._metric)
        if value is None or not math.isfinite(value) or version <= self._version:
            return
        self._version = version
        signed = self._sign * value
        if self._best is None or signed > self._best:
            self._best, self._without_better = signed, 0
        else:
            self._without_better += 1
        if signed >= self._target or self._without_better >= self._patience:
            self.is_reached = True

    def state_dict(self) -> dict[str, Any]:
        """Return the best value so far, and the evaluations since."""
        return {"early_stop": [self._best, self._without_better, self._version]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a saved state."""
        self._best, self._without_better, self._version = state["early_stop"]
