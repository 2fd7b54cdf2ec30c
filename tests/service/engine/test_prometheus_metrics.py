from offbeat.service.client_evaluation.evaluation_round import MetricStatistics, RoundSummary
from offbeat.service.engine.prometheus_metrics import Metrics
from offbeat.service.server_messages import Status


def test_metrics_are_text_with_labels_and_servers_do_not_share_them():
    metrics = Metrics()
    numbers = {"counted": 1, "unused": 0, "at_work": 0, "waiting": 0, "refused_steps": 0, "enrolled": 0}
    metrics.set_status(Status.model_construct(version=7, evaluated_by_clients=None, privacy=None, **numbers))
    metrics.refusals.labels("busy").inc(2)
    metrics.staleness.observe(3)
    lines = metrics.text().decode().splitlines()
    for line in (
        'offbeat_updates_total{outcome="counted"} 1.0',
        'offbeat_refusals_total{kind="busy"} 2.0',
        'offbeat_staleness_bucket{le="2.0"} 0.0',
        'offbeat_staleness_bucket{le="5.0"} 1.0',
        "offbeat_version 7.0",
    ):
        assert line in lines
    assert "offbeat_version" not in Metrics().text().decode()


def test_only_the_last_evaluation_by_clients_is_shown():
    metrics = Metrics()
    assert "offbeat_client" not in metrics.text().decode()
    for name, value in (("auc", 0.25), ("accuracy", 0.5)):
        statistics = MetricStatistics(clients=2, weighted=value, mean=0.75, p10=0.0, p50=0.5, p90=1.0, worst=0.0)
        metrics.set_client_evaluation(
            RoundSummary(version=3, asked=4, answered=2, examples=9, metrics={name: statistics})
        )
    lines = metrics.text().decode().splitlines()
    assert 'offbeat_client_metric{metric="accuracy",statistic="weighted"} 0.5' in lines
    assert "offbeat_clients_evaluated 2.0" in lines
    assert len([line for line in lines if line.startswith("offbeat_client_metric{")]) == 6
