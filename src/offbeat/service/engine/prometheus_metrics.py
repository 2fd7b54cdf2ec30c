"""Metrics for Prometheus."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from offbeat.service.client_evaluation.evaluation_round import RoundSummary
from offbeat.service.engine.privacy_status import PrivacyStatus

T = TypeVar("T")

_STALENESS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


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
        self.version = self._make(Gauge, "offbeat_version", "The newest version of the model")
        self.in_flight = self._make(Gauge, "offbeat_in_flight", "Clients at work whose leases have not ended")
        self.waiting = self._make(Gauge, "offbeat_waiting", "Clients that wait for work")
        self.refused_steps = self._make(Gauge, "offbeat_refused_steps", "Server steps that were not finite")
        self._privacy: dict[str, Gauge] | None = None
        self._by_clients: Gauge | None = None
        self._clients_evaluated: Gauge | None = None
        self.enrolled = self._make(Gauge, "offbeat_enrolled", "Clients that have enrolled")

    def set_updates(self, *, counted: int, unused: int) -> None:
        """Set the numbers of updates of the whole run, as in the status."""
        self._updates.numbers = {"counted": counted, "unused": unused}

    def refusals_by_kind(self) -> dict[str, int]:
        """Return the number of refused requests since the server's start, by kind."""
        samples = (sample for family in self.refusals.collect() for sample in family.samples)
        return {sample.labels["kind"]: int(sample.value) for sample in samples if sample.name.endswith("_total")}

    def set_client_evaluation(self, summary: RoundSummary) -> None:
        """Set the metrics of the last evaluation by clients, which other runs do not have."""
        if self._by_clients is None:
            self._by_clients = self._make(
                Gauge, "offbeat_client_metric", "A metric over the clients", ["metric", "statistic"]
            )
            self._clients_evaluated = self._make(
                Gauge, "offbeat_clients_evaluated", "Clients that have evaluated the last evaluated version"
            )
        assert self._clients_evaluated is not None
        self._clients_evaluated.set(summary.answered)
        self._by_clients.clear()  # the names are the clients'
        for metric, statistics in summary.metrics.items():
            for statistic, value in statistics.model_dump(exclude={"clients"}).items():
                self._by_clients.labels(metric, statistic).set(value)

    def set_privacy(self, status: PrivacyStatus) -> None:
        """Set the metrics of private sums, which other runs do not have."""
        if self._privacy is None:
            self._privacy = {
                "epsilon": self._make(
                    Gauge, "offbeat_epsilon", "Epsilon spent, over clients", ["adjacency", "clients"]
                ),
                "opened": self._make(Gauge, "offbeat_sums_opened", "Sums that became versions"),
                "discarded": self._make(Gauge, "offbeat_sums_discarded", "Sums that could not be opened"),
                "waiting": self._make(Gauge, "offbeat_sums_waiting", "Sealed sums that wait for the helper"),
                "suspended": self._make(Gauge, "offbeat_suspended_clients", "Clients of two discarded sums"),
                "helper": self._make(Gauge, "offbeat_helper_ok", "Whether the helper opens sums; 1 without a helper"),
            }
        gauges = self._privacy
        for adjacency, spent in (("zero-out", status.epsilon), ("replace-one", status.epsilon_replace_one)):
            if spent is not None:
                gauges["epsilon"].labels(adjacency, "largest").set(spent.largest)
                gauges["epsilon"].labels(adjacency, "median").set(spent.median)
        gauges["opened"].set(status.sums_opened)
        gauges["discarded"].set(status.sums_discarded)
        gauges["waiting"].set(status.sums_waiting)
        gauges["suspended"].set(status.suspended_clients)
        gauges["helper"].set(status.helper in (None, "ok"))

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def _make(self, kind: Callable[..., T], name: str, description: str, *arguments: Any, **more: Any) -> T:
        return kind(name, description, *arguments, registry=self._registry, **more)
