"""The evaluations of a run: when they are due, and the latest one."""

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor

from offbeat.algorithms.components import Algorithm
from offbeat.simulation.client_evaluations import ClientEvaluations
from offbeat.simulation.events import EventQueue, Kind
from offbeat.simulation.records import Evaluation, Totals
from offbeat.simulation.training_queue import DivergedError

Evaluate = Callable[[Tensor], tuple[float, dict[str, float]]]
"""Maps a model ``(d,)`` to its mean loss and its metrics by name."""


class Evaluations:
    """Evaluations of the model every so many virtual seconds or versions.

    A version is evaluated once. With ``every_versions``, an evaluation is due at the end of an instant in which the
    version has reached a multiple of it. Infinite numbers mean never. With ``clients``, some of these evaluate the
    same versions.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        queue: EventQueue,
        totals: Totals,
        evaluate: Evaluate,
        *,
        every_seconds: float,
        every_versions: float,
        clients: ClientEvaluations | None = None,
    ) -> None:
        self._algorithm = algorithm
        self._queue = queue
        self._totals = totals
        self._evaluate = evaluate
        self._clients = clients
        self._every_seconds = every_seconds
        self._every_versions = every_versions
        self._due_version = math.inf  # infinite also while that evaluation is in the queue
        self._latest: Evaluation | None = None

    def expect(self, now: float) -> None:
        """Put an evaluation at the end of this instant if the version makes one due."""
        if self._algorithm.version >= self._due_version:
            # It comes last in this instant, after all other versions that are made in it.
            self._queue.put(now, Kind.EVALUATION)
            self._due_version = math.inf

    def happen(self, now: float, number: int) -> Evaluation:
        """Make the evaluation of this number, and put the next one into the queue.

        Raises ``DivergedError`` if the model is not finite, or the algorithm refused a server step.
        """
        if self._every_seconds < math.inf:
            self._queue.put((number + 1) * self._every_seconds, Kind.EVALUATION, number + 1)
        return self._make(now)

    def last(self, now: float) -> Evaluation | None:
        """Return the run's last evaluation; None if the latest shows the same state."""
        latest = self._latest
        if latest is None or latest.seconds < now or latest.version < self._algorithm.version:
            return self._make(now)
        return None

    def _make(self, now: float) -> Evaluation:
        version, latest = self._algorithm.version, self._latest
        if latest is not None and latest.version == version:
            loss, metrics = latest.loss, latest.metrics
        else:
            model = self._algorithm.result
            loss, metrics = self._evaluate(model)
            # A refused step shows once the model has been read.
            for made_from, reason in self._algorithm.refused_steps.items():
                raise DivergedError(
                    f"the step from version {made_from} was refused: {reason}; lower server_lr or local.lr"
                )
            if self._clients is not None and math.isfinite(loss):
                metrics = {**metrics, **self._clients.happen(now, version, model)}
        if not math.isfinite(loss):
            remedy = (
                "lower server_lr or local.lr" if version else "scale the inputs, or let some labels count in the loss"
            )
            raise DivergedError(f"the model of version {version} has the test loss {loss}: {remedy}")
        self._latest = self._totals.evaluation(now, version, loss, metrics)
        self._due_version = (version // self._every_versions + 1) * self._every_versions
        return self._latest

    def state_dict(self) -> dict[str, Any]:
        """Return the latest evaluation, and the version at which the next is due."""
        return {"last": self._latest, "evaluate_at_version": self._due_version}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a saved state."""
        self._latest = None if state["last"] is None else Evaluation(*state["last"])
        self._due_version = state["evaluate_at_version"]
