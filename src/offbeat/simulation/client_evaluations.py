"""Evaluations of a run's versions by some of its clients."""

import logging
import math
from collections.abc import Callable, Container, Sequence
from typing import NamedTuple

from offbeat_core.errors import OffbeatError
from torch import Tensor

from offbeat.client_metrics import ClientResult, summarise
from offbeat.out_of_memory import is_out_of_memory
from offbeat.population.availability import Availability
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


class ClientEvaluations:
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
