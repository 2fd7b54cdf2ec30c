"""Checks of evaluation on clients, and the columns that it adds to histories."""

from collections.abc import Sequence

from offbeat_core.setting_names import setting

from offbeat.client_metrics import columns
from offbeat.config.experiment_sections import RESERVED, EvaluateSection, Metric, metric_name
from offbeat.training.metric_names import TRAINING_LOSS
from offbeat.training.objectives import METRICS

LOSS = "loss"
_CLIENTS_COLUMNS = ("client", "examples")  # of clients.parquet, beside those that histories have, too


def client_metrics(evaluate: EvaluateSection, metrics: Sequence[Metric]) -> list[str]:
    """Return the names of the metrics that clients measure beside their loss."""
    if evaluate.on_clients is None:
        return []
    return [metric_name(metric) for metric in metrics if metric != TRAINING_LOSS]


def client_columns(evaluate: EvaluateSection, metrics: Sequence[Metric]) -> list[str]:
    """Return the history's columns about clients; none without ``on_clients``."""
    return [] if evaluate.on_clients is None else list(columns(client_metrics(evaluate, metrics)))


def lower_is_better(evaluate: EvaluateSection, metrics: Sequence[str]) -> set[str]:
    """Return those metrics, and losses, whose highest values are the worst."""
    lower = {LOSS, TRAINING_LOSS, *(name for name in metrics if name in METRICS and not METRICS[name].higher_is_better)}
    first = metric_name((evaluate.metrics or [*metrics, LOSS])[0])
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
