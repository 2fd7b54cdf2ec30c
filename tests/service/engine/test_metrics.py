from offbeat.service.engine.metrics import Metrics


def test_metrics_are_text_with_labels_and_servers_do_not_share_them():
    metrics = Metrics()
    metrics.updates.labels("counted").inc()
    metrics.refusals.labels("busy").inc(2)
    metrics.staleness.observe(3)
    metrics.version.set(7)
    lines = metrics.text().decode().splitlines()
    for line in (
        'offbeat_updates_total{outcome="counted"} 1.0',
        'offbeat_refusals_total{kind="busy"} 2.0',
        'offbeat_staleness_bucket{le="2.0"} 0.0',
        'offbeat_staleness_bucket{le="5.0"} 1.0',
        "offbeat_version 7.0",
    ):
        assert line in lines
    assert "offbeat_version 0.0" in Metrics().text().decode().splitlines()
