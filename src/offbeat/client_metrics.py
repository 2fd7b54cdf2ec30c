"""Metrics that clients measure on their held-out examples, and their summary."""

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

CLIENTS_EVALUATED = "clients_evaluated"
"""The column with the number of clients that have measured a version."""

STATISTICS = ("weighted", "mean", "p10", "p50", "p90", "worst")
"""Of a metric over clients: the mean weighted by examples, the mean of clients, three percentiles, and the mean of the
worst tenth of the clients, rounded up."""


CLIENT = "client_"


class ClientResult(NamedTuple):
    """The measurement of one version by one client.

    Attributes:
        client: The client.
        examples: How many held-out examples it has.
        metrics: Its loss and metrics by name; in a simulation NaN for a metric that is undefined.
    """

    client: int
    examples: int
    metrics: Mapping[str, float]

    @property
    def has_answer(self) -> bool:
        """True if the client has examples, and its loss is a finite number."""
        return self.examples > 0 and math.isfinite(self.metrics["loss"])


def column(metric: str, statistic: str) -> str:
    """Return the name of a statistic: ``client_accuracy`` for the weighted mean."""
    return f"{CLIENT}{metric}" if statistic == STATISTICS[0] else f"{CLIENT}{metric}_{statistic}"


def metric_of(name: str) -> str:
    """Return the metric of a statistic, or the name itself if it is not a statistic's."""
    if not name.startswith(CLIENT):
        return name
    metric, _, statistic = name.removeprefix(CLIENT).rpartition("_")
    return metric if metric and statistic in STATISTICS[1:] else name.removeprefix(CLIENT)


def columns(metrics: Sequence[str]) -> Iterator[str]:
    """Yield the names of all statistics of the loss and these metrics."""
    yield CLIENTS_EVALUATED
    for metric in ("loss", *metrics):
        for statistic in STATISTICS:
            yield column(metric, statistic)


def statistics(values: Sequence[float], examples: Sequence[int], *, lower_is_better: bool) -> dict[str, float]:
    """Return the ``STATISTICS`` of a metric over clients; NaN without clients."""
    if not values:
        return dict.fromkeys(STATISTICS, math.nan)
    ascending = np.sort(np.asarray(values, dtype=np.float64))
    tenth = math.ceil(len(values) / 10)
    worst = ascending[-tenth:] if lower_is_better else ascending[:tenth]
    weighted = np.average(np.asarray(values, dtype=np.float64), weights=examples)
    numbers = (weighted, ascending.mean(), *np.quantile(ascending, (0.1, 0.5, 0.9)), worst.mean())
    return dict(zip(STATISTICS, map(float, numbers), strict=True))


def summarise(
    results: Sequence[ClientResult], metrics: Sequence[str], lower_is_better: Container[str]
) -> dict[str, float]:
    """Return the values of ``columns``, of clients where the metric is finite."""
    summary: dict[str, float] = {CLIENTS_EVALUATED: float(len(results))}
    for metric in ("loss", *metrics):
        having = [result for result in results if math.isfinite(result.metrics[metric])]
        values, examples = [result.metrics[metric] for result in having], [result.examples for result in having]
        of_metric = statistics(values, examples, lower_is_better=metric in lower_is_better)
        summary |= {column(metric, name): value for name, value in of_metric.items()}
    return summary
