"""The metrics of evaluations: columns, better values, the end of a run by one."""

from collections.abc import Sequence

from offbeat_core.errors import setting

from offbeat.client_metrics import CLIENT, column, columns, metric_of
from offbeat.config.experiment_sections import RESERVED, EarlyStopSection, EvaluateSection, Metric, metric_name
from offbeat.early_stop import BestMetric, EarlyStop
from offbeat.training.objectives import METRICS
from offbeat.training.trainer_names import TRAINING_LOSS

_LOSS = "loss"
_CLIENTS_COLUMNS = ("client", "examples")  # of clients.parquet, beside those that histories have, too


def client_columns(evaluate: EvaluateSection, metrics: Sequence[Metric]) -> list[str]:
    """Return the history's columns about clients; none without ``on_clients``."""
    if evaluate.on_clients is None:
        return []
    return list(columns([metric_name(metric) for metric in metrics if metric != TRAINING_LOSS]))


def lower_is_better(evaluate: EvaluateSection, metrics: Sequence[str]) -> set[str]:
    """Return those metrics, and losses, whose highest values are the worst."""
    known = {name for name in metrics if name in METRICS and not METRICS[name].higher_is_better}
    lower = {_LOSS, TRAINING_LOSS} | known
    first = metric_name((evaluate.metrics or [*metrics, _LOSS])[0])
    if evaluate.better is not None and first in metrics:
        lower = lower | {first} if evaluate.better == "lower" else lower - {first}
    return lower


def check_client_evaluation(
    evaluate: EvaluateSection, metrics: Sequence[Metric], *, holdout: float, is_private: bool
) -> None:
    """Raise ``ValueError`` if clients cannot or must not evaluate."""
    if evaluate.on_clients is None:
        return
    if not holdout:
        raise ValueError(
            f"{setting('evaluate.on_clients')} needs held-out examples: set population.holdout, for instance to 0.2"
        )
    check_not_private(is_private)
    names = [*RESERVED, *_CLIENTS_COLUMNS, *map(metric_name, metrics), *client_columns(evaluate, metrics)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(
            f"{setting('evaluate.metrics')}: with {setting('evaluate.on_clients')}, {twice} names two columns: rename "
            "the metric"
        )


def check_not_private(is_private: bool) -> None:
    """Raise ``ValueError`` if clients would evaluate in a private run."""
    if is_private:
        raise ValueError(
            f"{setting('evaluate.on_clients')} does not go with [privacy]: clients would send their metrics in the "
            "clear, and ε does not cover them: leave one of the two out"
        )


def early_stop(stop: EarlyStopSection, evaluate: EvaluateSection, metrics: Sequence[Metric]) -> EarlyStop | None:
    """Return the end of a simulation by a metric; None if there is none.

    ``metrics`` are names or import paths. Raises ``ValueError`` if the metric is unknown.
    """
    known = [*map(metric_name, metrics), _LOSS]
    return _early_stop(stop, evaluate, known, [*known, *client_columns(evaluate, metrics)[1:]])


def server_early_stop(
    stop: EarlyStopSection, evaluate: EvaluateSection | None, metrics: Sequence[Metric], *, has_test_set: bool
) -> EarlyStop | None:
    """Return the end of a server's run, whose clients may measure any metrics."""
    if not stop.is_early:
        return None
    if evaluate is None:
        raise ValueError("stop.target and stop.patience need evaluations: set evaluate.every_versions")
    known = [*map(metric_name, metrics), _LOSS]
    return _early_stop(stop, evaluate, known, _measured(evaluate, known, stop.metric, has_test_set=has_test_set))


def best_metric(
    name: str | None, evaluate: EvaluateSection | None, metrics: Sequence[Metric], *, has_test_set: bool
) -> BestMetric | None:
    """Return the metric by which a server keeps the best version; None if it does not."""
    if name is None:
        return None
    if evaluate is None:
        raise ValueError("service.keep_best needs evaluations: set evaluate.every_versions")
    known = [*map(metric_name, metrics), _LOSS]
    measured = _measured(evaluate, known, name, has_test_set=has_test_set)
    if name not in measured:
        raise ValueError(f"service.keep_best = {name!r}: {_hint(name, evaluate, measured)}")
    return BestMetric(name, metric_of(name) in lower_is_better(evaluate, [*known, *METRICS]))


def _measured(
    evaluate: EvaluateSection, metrics: Sequence[str], asked: str | None, *, has_test_set: bool
) -> Sequence[str]:
    """Return the values of a server's evaluations; clients may measure any they name."""
    measured = list(metrics) if has_test_set else []
    if evaluate.on_clients is not None:
        measured += [column(metric, "weighted") for metric in metrics]
        if asked is not None and asked.startswith(CLIENT):
            measured.append(asked)
    return measured


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
