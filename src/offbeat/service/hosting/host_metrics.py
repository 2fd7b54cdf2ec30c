"""Metrics of a server of several runs for Prometheus."""

from collections import Counter
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from offbeat.service.hosting.host_messages import RUN_STATES, HostStatus


class _Numbers(Collector):
    """The numbers that the server has counted itself."""

    def __init__(self, status: HostStatus, refusals: Counter[str]) -> None:
        self._status = status
        self._refusals = refusals

    def collect(self) -> Iterable[Metric]:
        states = Counter(run.state for run in self._status.runs)
        runs = GaugeMetricFamily("offbeat_runs", "Runs of the server, by state", labels=["state"])
        for state in RUN_STATES:
            runs.add_metric([state], states[state])
        sites = GaugeMetricFamily("offbeat_sites", "Sites that have enrolled with the server", labels=["revoked"])
        sites.add_metric(["no"], self._status.sites - self._status.revoked_sites)
        sites.add_metric(["yes"], self._status.revoked_sites)
        refusals = CounterMetricFamily(
            "offbeat_refusals", "Requests to the server itself that were refused, by kind", labels=["kind"]
        )
        for kind, number in self._refusals.items():
            refusals.add_metric([kind], number)
        return [runs, sites, refusals]


def metrics_text(status: HostStatus, refusals: Counter[str]) -> bytes:
    """Return the metrics in Prometheus' text format; each run has its own."""
    registry = CollectorRegistry()
    registry.register(_Numbers(status, refusals))
    return generate_latest(registry)
