"""The end of a run by a metric, made from ``[stop]`` and ``[evaluate]``."""

from collections.abc import Sequence

from offbeat_core.setting_names import setting

from offbeat.client_metrics import CLIENT, column, metric_of
from offbeat.config.client_evaluation import LOSS, client_columns, lower_is_better
from offbeat.config.experiment_sections import EarlyStopSection, EvaluateSection, Metric, metric_name
from offbeat.early_stop import EarlyStop
from offbeat.training.objectives import METRICS


def early_stop(stop: EarlyStopSection, evaluate: EvaluateSection, metrics: Sequence[Metric]) -> EarlyStop | None:
    """Return the end of a simulation by a metric; None if there is none.

    ``metrics`` are names or import paths. Raises ``ValueError`` if the metric is unknown.
    """
    known = [*map(metric_name, metrics), LOSS]
    return _early_stop(stop, evaluate, known, [*known, *client_columns(evaluate, metrics)[1:]])


def server_early_stop(
    stop: EarlyStopSection, evaluate: EvaluateSection | None, metrics: Sequence[Metric], *, has_test_set: bool
) -> EarlyStop | None:
    """Return the end of a server's run, whose clients may measure any metrics."""
    if not stop.is_early:
        return None
    if evaluate is None:
        raise ValueError("stop.target and stop.patience need evaluations: set evaluate.every_versions")
    known = [*map(metric_name, metrics), LOSS]
    measured = known if has_test_set else []
    if evaluate.on_clients is not None:
        measured = [*measured, *(column(metric, "weighted") for metric in known)]
        if stop.metric is not None and stop.metric.startswith(CLIENT):
            measured.append(stop.metric)
    return _early_stop(stop, evaluate, known, measured)


def _early_stop(
    stop: EarlyStopSection, evaluate: EvaluateSection, metrics: Sequence[str], measured: Sequence[str]
) -> EarlyStop | None:
    if not stop.is_early:
        return None
    name = stop.metric or measured[0]
    if name not in measured:
        raise ValueError(f"{setting('stop.metric')} = {name!r}: {_hint(name, evaluate, measured)}")
    metric = metric_of(name)
    if metric == "accuracy" and stop.target is not None and not 0 <= stop.target <= 1:
        raise ValueError(
            f"{setting('stop.target')} = {stop.target:g}: an accuracy is between 0 and 1, for instance 0.8"
        )
    lower = metric in lower_is_better(evaluate, [*metrics, *METRICS])
    return EarlyStop(name, lower_is_better=lower, target=stop.target, patience=stop.patience)


def _hint(name: str, evaluate: EvaluateSection, measured: Sequence[str]) -> str:
    if name.startswith(CLIENT) and evaluate.on_clients is None:
        return f"clients measure nothing: set {setting('evaluate.on_clients')}"
    return f"must be one of {', '.join(measured)}"
