import pytest
import torch

from offbeat.training import training_loss
from offbeat.training.training_loss import TrainingLossEvaluator, choose_evenly


def test_the_training_loss_is_the_last_metric():
    evaluate = TrainingLossEvaluator(lambda vector: (1.0, {"accuracy": 0.5}), lambda vector: (2.0, {}))
    loss, metrics = evaluate(torch.zeros(1))
    assert (loss, list(metrics.items())) == (1.0, [("accuracy", 0.5), ("training_loss", 2.0)])


@pytest.mark.parametrize(("limit", "chosen"), [(4, [0, 2, 5, 7]), (10, list(range(10)))])
def test_examples_are_chosen_evenly(monkeypatch, limit, chosen):
    monkeypatch.setattr(training_loss, "EXAMPLES", limit)
    inputs, labels = choose_evenly(torch.arange(10.0)[:, None], torch.arange(10))
    assert inputs.flatten().tolist() == labels.tolist() == chosen


def test_inputs_by_name_stay_together(monkeypatch):
    monkeypatch.setattr(training_loss, "EXAMPLES", 4)
    inputs, _ = choose_evenly({"a": torch.arange(10), "b": -torch.arange(10)}, torch.arange(10))
    assert {name: part.tolist() for name, part in inputs.items()} == {"a": [0, 2, 5, 7], "b": [0, -2, -5, -7]}
