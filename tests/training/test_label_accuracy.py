"""Accuracy by label, counted by hand."""

import pytest
import torch

from offbeat.training.label_accuracy import label_metrics

OUTPUTS = torch.tensor([[2.0, 1, 0], [0, 1, 2], [3, 0, 0], [0, 5, 1], [0, 1, 9]])
LABELS = torch.tensor([0, 0, 0, 1, 2])


def test_each_label_has_the_share_of_its_own_examples():
    metrics = label_metrics(LABELS)
    assert {name: metric(OUTPUTS, LABELS) for name, metric in metrics.items()} == {"0": 2 / 3, "1": 1.0, "2": 1.0}


def test_two_labels_of_one_logit():
    labels = torch.tensor([0, 1, 1])
    metrics = label_metrics(labels)
    outputs = torch.tensor([[-1.0], [2.0], [-3.0]])
    assert {name: metric(outputs, labels) for name, metric in metrics.items()} == {"0": 1.0, "1": 0.5}


@pytest.mark.parametrize(
    "labels", [torch.rand(4), torch.zeros(4, 2, dtype=torch.int64), torch.arange(101)], ids=["floats", "pairs", "many"]
)
def test_other_labels_are_no_classes(labels):
    assert label_metrics(labels) == {}


def test_an_ignored_label_has_no_accuracy():
    assert list(label_metrics(torch.tensor([0, -100, 2]))) == ["0", "2"]
    assert list(label_metrics(torch.tensor([0, 255, 2]), 255)) == ["0", "2"]
