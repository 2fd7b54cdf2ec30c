import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbeat.client_metrics import (
    CLIENTS_EVALUATED,
    STATISTICS,
    ClientResult,
    column,
    columns,
    metric_of,
    statistics,
    summarise,
)


def test_statistics_of_eleven_clients():
    values = [0.5, 0.0, 1.0, 0.9, 0.1, 0.2, 0.3, 0.8, 0.7, 0.6, 0.4]
    found = statistics(values, [10] + [1] * 10, lower_is_better=False)
    assert found == pytest.approx(
        # The worst tenth of eleven clients is two of them.
        {"weighted": 10.0 / 20, "mean": 0.5, "p10": 0.1, "p50": 0.5, "p90": 0.9, "worst": 0.05}
    )
    assert statistics(values, [1] * 11, lower_is_better=True)["worst"] == pytest.approx(0.95)


def test_the_weighted_mean_is_that_of_all_examples_together():
    assert statistics([0.25, 1.0], [4, 1], lower_is_better=False)["weighted"] == (1 + 1) / 5


def test_one_client_and_none():
    assert set(statistics([0.3], [7], lower_is_better=False).values()) == {0.3}
    assert all(map(math.isnan, statistics([], [], lower_is_better=True).values()))


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40), st.booleans())
def test_statistics_lie_within_the_values(values, lower):
    found = statistics(values, [2] * len(values), lower_is_better=lower)
    slack = 1e-9 * max(map(abs, values))
    assert all(min(values) - slack <= number <= max(values) + slack for number in found.values())
    assert found["weighted"] == pytest.approx(found["mean"], abs=1e-9 + slack)
    assert found["p10"] <= found["p50"] <= found["p90"]
    assert found["worst"] >= found["mean"] - slack if lower else found["worst"] <= found["mean"] + slack


def test_the_summary_has_a_value_for_each_column():
    results = [
        ClientResult(4, 3, {"loss": 1.0, "accuracy": 0.25, "mae": 2.0}),
        ClientResult(0, 1, {"loss": 3.0, "accuracy": 0.75, "mae": 4.0}),
    ]
    summary = summarise(results, ["accuracy", "mae"], {"loss", "mae"})
    assert list(summary) == list(columns(["accuracy", "mae"]))
    assert summary[CLIENTS_EVALUATED] == 2
    assert (summary["client_loss"], summary["client_loss_mean"], summary["client_loss_worst"]) == (1.5, 2.0, 3.0)
    assert (summary["client_accuracy"], summary["client_accuracy_worst"]) == (0.375, 0.25)
    assert summary["client_mae_worst"] == 4.0
    none = summarise([], ["accuracy"], {"loss"})
    assert none.pop(CLIENTS_EVALUATED) == 0
    assert np.isnan(list(none.values())).all()


@pytest.mark.parametrize("metric", ["loss", "f1", "f1_mean", "p10", "a_b", "client_f1"])
def test_the_metric_of_a_column(metric):
    assert metric_of("accuracy_mean") == "accuracy_mean"
    for statistic in STATISTICS[1:]:
        assert metric_of(column(metric, statistic)) == metric


def test_names_of_columns():
    assert [column("f1", name) for name in ("weighted", "p90")] == ["client_f1", "client_f1_p90"]


@pytest.mark.parametrize(
    ("examples", "loss", "finite"), [(1, 0.0, True), (0, 0.0, False), (3, math.nan, False), (3, -math.inf, False)]
)
def test_results_that_do_not_count(examples, loss, finite):
    assert ClientResult(0, examples, {"accuracy": 1.0, "loss": loss}).has_answer is finite
