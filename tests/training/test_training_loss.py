import pytest
import torch

from offbeat.training import training_loss
from offbeat.training.training_loss import TrainingLossEvaluator, evenly_spaced


def test_the_training_loss_is_the_last_metric():
    evaluate = TrainingLossEvaluator(lambda vector: (1.0, {"accuracy": 0.5}), lambda vector: (2.0, {}))
    loss, metrics = evaluate(torch.zeros(1))
    assert (loss, list(metrics.items())) == (1.0, [("accuracy", 0.5), ("training_loss", 2.0)])


@pytest.mark.parametrize(("limit", "chosen"), [(4, [0, 2, 5, 7]), (10, list(range(10)))])
def test_examples_are_chosen_evenly(monkeypatch, limit, chosen):
    monkeypatch.setattr(training_loss, "EXAMPLES", limit)
    assert evenly_spaced(10).tolist() == chosen
