"""Metrics for Prometheus."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from offbeat.service.client_evaluation.evaluation_round import RoundSummary
from offbeat.service.engine.privacy_status import PrivacyStatus
from offbeat.service.server_messages import Status

T = TypeVar("T")

_STALENESS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_GAUGES = {
    "version": "The newest version of the model",
    "in_flight": "Clients at work whose leases have not ended",
    "waiting": "Clients that wait for work",
    "refused_steps": "Server steps that were not finite",
    "enrolled": "Clients that have enrolled",
    "client_metric": "A metric over the clients",
    "clients_evaluated": "Clients that have evaluated the last evaluated version",
    "epsilon": "Epsilon spent, over clients",
    "sums_opened": "Sums that became versions",
    "sums_discarded": "Sums that could not be opened",
    "sums_waiting": "Sealed sums that wait for the helper",
    "suspended_clients": "Clients of two discarded sums",
    "helper_ok": "Whether the helper opens sums; 1 without a helper",
}


class _Updates(Collector):
    """A counter that is set, since the coordinator counts, also over restarts."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def collect(self) -> Iterable[Metric]:
        description = "Updates of the run, by what became of them"
        family = CounterMetricFamily("offbeat_updates", description, labels=["outcome"])
        for outcome, number in self.numbers.items():
            family.add_metric([outcome], number)
        return [family]


class Metrics:
    """The server's metrics, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._updates = _Updates()
        self._registry.register(self._updates)
        self.staleness = self._make(
            Histogram, "offbeat_staleness", "Versions made between download and use of an update", buckets=_STALENESS
        )
        self.upload_bytes = self._make(Counter, "offbeat_upload_bytes", "Bytes of updates that arrived")
        self.download_bytes = self._make(Counter, "offbeat_download_bytes", "Bytes of models that were sent")
        self.refusals = self._make(Counter, "offbeat_refusals", "Requests that were refused, by kind", ["kind"])
        self.seconds = self._make(Histogram, "offbeat_request_seconds", "Seconds until an answer began", ["route"])
        self._gauges: dict[str, Gauge] = {}

    def set_status(self, status: Status) -> None:
        """Set the metrics that the status has."""
        self._updates.numbers = {"counted": status.counted, "unused": status.unused}
        self._gauge("version").set(status.version)
        self._gauge("in_flight").set(status.at_work)
        self._gauge("waiting").set(status.waiting)
        self._gauge("refused_steps").set(status.refused_steps)
        self._gauge("enrolled").set(status.enrolled)
        if status.evaluated_by_clients is not None:
            self.set_client_evaluation(status.evaluated_by_clients)
        if status.privacy is not None:
            self.set_privacy(status.privacy)

    def set_client_evaluation(self, summary: RoundSummary) -> None:
        """Set the metrics of the last evaluation by clients."""
        by_clients = self._gauge("client_metric", ["metric", "statistic"])
        by_clients.clear()  # the names are the clients'
        for metric, statistics in summary.metrics.items():
            for statistic, value in statistics.model_dump(exclude={"clients"}).items():
                by_clients.labels(metric, statistic).set(value)
        self._gauge("clients_evaluated").set(summary.answered)

    def set_privacy(self, status: PrivacyStatus) -> None:
        """Set the metrics of private sums."""
        epsilon = self._gauge("epsilon", ["adjacency", "clients"])
        for adjacency, spent in (("zero-out", status.epsilon), ("replace-one", status.epsilon_replace_one)):
            if spent is not None:
                epsilon.labels(adjacency, "largest").set(spent.largest)
                epsilon.labels(adjacency, "median").set(spent.median)
        for name in ("sums_opened", "sums_discarded", "sums_waiting", "suspended_clients"):
            self._gauge(name).set(getattr(status, name))
        self._gauge("helper_ok").set(status.helper in (None, "ok"))

    def refusals_by_kind(self) -> dict[str, int]:
        """Return the number of refused requests since the server's start, by kind."""
        samples = (sample for family in self.refusals.collect() for sample in family.samples)
        return {sample.labels["kind"]: int(sample.value) for sample in samples if sample.name.endswith("_total")}

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def _gauge(self, name: str, labels: Sequence[str] = ()) -> Gauge:
        """Return a gauge, made when it is first set, since not all runs have all."""
        if name not in self._gauges:
            self._gauges[name] = self._make(Gauge, f"offbeat_{name}", _GAUGES[name], labels)
        return self._gauges[name]

    def _make(self, kind: Callable[..., T], name: str, description: str, *arguments: Any, **more: Any) -> T:
        return kind(name, description, *arguments, registry=self._registry, **more)
