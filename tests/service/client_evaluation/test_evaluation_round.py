import json

import pytest

from offbeat.client_metrics import ClientResult
from offbeat.service.client_evaluation.evaluation_round import EvaluationRound


def a_round():
    current = EvaluationRound(12, [3, 5, 8])
    current.answer(ClientResult(5, 10, {"accuracy": 0.5, "loss": 2.0}))
    current.skip([8, 4])
    current.answer(ClientResult(3, 30, {"accuracy": 0.9, "auc": 0.75}))
    return current


def test_clients_answer_or_are_skipped():
    current = EvaluationRound(12, [3, 5, 8])
    assert current.asked == {3, 5, 8}
    current.answer(ClientResult(5, 10, {"accuracy": 0.5}))
    current.skip([8, 4])
    assert current.asked == {3}
    assert [current.has_chosen(client) for client in (3, 4, 5, 8)] == [True, False, True, True]


def test_the_summary_is_of_the_clients_that_sent_a_metric():
    summary = a_round().summary({"loss"})
    assert (summary.version, summary.asked, summary.answered, summary.examples) == (12, 3, 2, 40)
    assert {name: value.clients for name, value in summary.metrics.items()} == {"accuracy": 2, "auc": 1, "loss": 1}
    accuracy = summary.metrics["accuracy"]
    assert (accuracy.weighted, accuracy.mean, accuracy.worst) == (pytest.approx(0.8), 0.7, 0.5)
    assert a_round().summary({"accuracy"}).metrics["accuracy"].worst == 0.9


def test_a_client_cannot_fill_the_summary_with_names():
    current = EvaluationRound(0, range(3))
    for client in range(3):
        names = [f"m{client}{number}" for number in range(31)]
        current.answer(ClientResult(client, 1, dict.fromkeys([*names, "accuracy"], 0.5)))
    metrics = current.summary({"loss"}).metrics
    assert len(metrics) == 32
    assert metrics["accuracy"].clients == 3


def test_the_line_has_each_client():
    line = a_round().line({"loss"})
    assert line.endswith("}\n")
    content = json.loads(line)
    assert content["metrics"]["auc"]["mean"] == 0.75
    assert content["by_client"] == [
        {"client": 3, "examples": 30, "metrics": {"accuracy": 0.9, "auc": 0.75}},
        {"client": 5, "examples": 10, "metrics": {"accuracy": 0.5, "loss": 2.0}},
    ]


def test_a_round_without_answers_has_a_summary():
    current = EvaluationRound(4, [1])
    current.skip([1])
    assert current.summary({"loss"}).model_dump() == {
        "version": 4, "asked": 1, "answered": 0, "examples": 0, "metrics": {}
    }  # fmt: skip
