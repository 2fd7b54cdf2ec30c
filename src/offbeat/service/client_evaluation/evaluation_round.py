"""The evaluation of one version by the clients that were chosen for it."""

import json
from collections import Counter
from collections.abc import Collection, Container, Iterable

from offbeat_core.messages import MOST_METRICS, Answer

from offbeat.client_metrics import STATISTICS, ClientResult, column, statistics


class MetricStatistics(Answer):
    """The statistics of a metric over the clients that have sent it."""

    clients: int
    weighted: float
    mean: float
    p10: float
    p50: float
    p90: float
    worst: float


class RoundSummary(Answer):
    """The statistics of a version over the clients that have evaluated it."""

    version: int
    asked: int
    answered: int
    examples: int
    metrics: dict[str, MetricStatistics]

    def columns(self) -> dict[str, float]:
        """Return the statistics by the names of the columns of a simulation's history."""
        return {
            column(metric, statistic): getattr(found, statistic)
            for metric, found in self.metrics.items()
            for statistic in STATISTICS
        }


class EvaluationRound:
    """A version, and the answers of the clients that were asked to evaluate it.

    ``asked`` are the clients that have neither answered nor been skipped.
    """

    def __init__(self, version: int, chosen: Collection[int]) -> None:
        self.version = version
        self.asked = set(chosen)
        self.results: dict[int, ClientResult] = {}
        self._chosen = frozenset(chosen)

    def has_chosen(self, client: int) -> bool:
        """Return whether the client was chosen to evaluate the version."""
        return client in self._chosen

    def answer(self, result: ClientResult) -> None:
        """Take the answer of a client that is asked."""
        self.asked.remove(result.client)
        self.results[result.client] = result

    def skip(self, clients: Iterable[int]) -> None:
        """Wait no longer for clients."""
        self.asked.difference_update(clients)

    def summary(self, lower_is_better: Container[str]) -> RoundSummary:
        """Return the statistics of the metrics that most clients have sent."""
        results = list(self.results.values())
        sent = Counter(name for result in results for name in result.metrics)
        most_sent = sorted(sent, key=lambda name: (-sent[name], name))[:MOST_METRICS]
        return RoundSummary(
            version=self.version,
            asked=len(self._chosen),
            answered=len(results),
            examples=sum(result.examples for result in results),
            metrics={name: _statistics(name, results, name in lower_is_better) for name in sorted(most_sent)},
        )

    def line(self, lower_is_better: Container[str]) -> str:
        """Return the summary and the answers as a line of JSON."""
        clients = [result._asdict() for _, result in sorted(self.results.items())]
        return json.dumps({**self.summary(lower_is_better).model_dump(), "by_client": clients}) + "\n"


def _statistics(name: str, results: Iterable[ClientResult], lower_is_better: bool) -> MetricStatistics:
    senders = [result for result in results if name in result.metrics]
    values, examples = [result.metrics[name] for result in senders], [result.examples for result in senders]
    return MetricStatistics(clients=len(senders), **statistics(values, examples, lower_is_better=lower_is_better))
