"""The evaluations of a run, on the test set and by some of its clients."""

import logging
import math
from collections.abc import Callable, Container, Sequence
from typing import Any, NamedTuple

from offbeat_core.errors import OffbeatError
from torch import Tensor

from offbeat.algorithms.components import Algorithm
from offbeat.client_metrics import ClientResult, summarise
from offbeat.population.availability import Availability
from offbeat.process_memory import is_out_of_memory
from offbeat.simulation.events import EventQueue, Kind
from offbeat.simulation.totals import Evaluation, Totals
from offbeat.simulation.training_queue import DivergedError
from offbeat.uniform_numbers import choose_clients

_log = logging.getLogger(__name__)

MeasureOnClient = Callable[[int, Tensor, Callable[[OffbeatError], None]], tuple[float, dict[str, float]]]
"""Maps a client and a model ``(d,)`` to its loss and metrics on the client's held-out examples.

Calls a function with the error of each metric that is undefined, which is left out.
"""


class ClientEvaluation(NamedTuple):
    """One client's evaluation of one version, at a virtual time."""

    seconds: float
    version: int
    result: ClientResult

    def row(self) -> dict[str, float]:
        """Return the row of ``clients.parquet``, by column."""
        client, examples, metrics = self.result
        return {"seconds": self.seconds, "version": self.version, "client": client, "examples": examples, **metrics}


class EvaluationsByClients:
    """Evaluations by random available clients, on their held-out examples.

    They take neither virtual time nor bytes. Clients at work evaluate, too. Clients whose loss is not finite or cannot
    be computed do not answer; others leave out such metrics. The first failure of a run is logged.

    Args:
        measure: Measures a model on a client's examples.
        availability: When clients are available.
        examples: Each client's number of held-out examples.
        number: How many clients evaluate a version.
        metrics: The names of the metrics.
        lower_is_better: Those, and the loss, whose highest values are the worst.
        seed: The run's seed.

    Attributes:
        made: All evaluations; a reader may remove them.
    """

    def __init__(
        self,
        measure: MeasureOnClient,
        availability: Availability,
        examples: Sequence[int],
        *,
        number: int,
        metrics: Sequence[str],
        lower_is_better: Container[str],
        seed: int,
    ) -> None:
        self.made: list[ClientEvaluation] = []
        self._measure = measure
        self._availability = availability
        self._examples = examples
        self._number = number
        self._metrics = metrics
        self._lower_is_better = lower_is_better
        self._seed = seed
        self._has_failed = False

    def happen(self, now: float, version: int, model: Tensor) -> dict[str, float]:
        """Let clients evaluate a version; return the values of the history's columns."""

        def can_evaluate(client: int) -> bool:
            return self._examples[client] > 0 and self._availability.next_available(client, now) == now

        chosen = choose_clients(self._seed, version, len(self._examples), self._number, can_evaluate)
        measured = (self._result(client, version, model) for client in chosen)
        results = list(filter(lambda result: result.has_answer, measured))
        self.made += [ClientEvaluation(now, version, result) for result in results]
        return summarise(results, self._metrics, self._lower_is_better)

    def _result(self, client: int, version: int, model: Tensor) -> ClientResult:
        def log(error: OffbeatError) -> None:
            if not self._has_failed:
                self._has_failed = True
                _log.warning("client %d does not measure version %d: %s", client, version, error)

        undefined = dict.fromkeys(self._metrics, math.nan)
        try:
            loss, metrics = self._measure(client, model, log)
        except OffbeatError as error:
            if error.__cause__ is not None and is_out_of_memory(error.__cause__):
                raise
            log(error)
            loss, metrics = math.nan, {}
        return ClientResult(client, self._examples[client], {"loss": loss, **undefined, **metrics})


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
        clients: EvaluationsByClients | None = None,
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
        self._latest = self._totals.evaluation(now, version, self._algorithm.displacement, loss, metrics)
        self._due_version = (version // self._every_versions + 1) * self._every_versions
        return self._latest

    def state_dict(self) -> dict[str, Any]:
        """Return the latest evaluation, and the version at which the next is due."""
        return {"last": self._latest, "evaluate_at_version": self._due_version}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a saved state."""
        self._latest = None if state["last"] is None else Evaluation(*state["last"])
        self._due_version = state["evaluate_at_version"]
