import math
from pathlib import Path

import numpy as np
import pytest
import torch

from offbeat.config import experiment_file
from offbeat.runs.run_all import run_all
from tests.examples.both_worlds import assert_both_worlds_agree, function, small_server_file

EXAMPLE = Path(__file__).parents[3] / "examples" / "segmentation"


def test_both_worlds_come_to_the_same_net(tmp_path, monkeypatch):
    small = {"train_examples": 60, "test_examples": 10}
    file, make = small_server_file(EXAMPLE, tmp_path / "server.toml", monkeypatch, small)
    served = assert_both_worlds_agree(file, make, tmp_path)
    assert list(served.clients[0].metrics) == ["iou"]


def test_the_experiment_learns(tmp_path, quiet):
    changes = ["stop.updates=40", "data.arguments.train_examples=300", "local.lr=0.3", "evaluate.every_versions=4"]
    experiment = experiment_file.load(EXAMPLE / "experiment.toml", changes)
    (run,) = run_all(experiment, ["fedavg"], tmp_path / "runs", quiet)
    first, last = (run.history["iou"][index] for index in (0, -1))
    assert 0 <= first < last <= 1
    assert run.history["loss"][-1] < 0.8 * run.history["loss"][0]
    assert run.history["client_iou"][-1] > first


def test_pictures_are_what_they_say():
    dataset = function(EXAMPLE / "shapes.py", "data")(users=4, train_examples=200, test_examples=20)
    labels = dataset.train_labels
    assert sorted(set(labels.flat)) == [0, 1, 2, 255]
    kinds = np.array([picture[(picture == 1) | (picture == 2)].max() for picture in labels])  # one shape each
    share = [float((kinds[dataset.users == user] == 2).mean()) for user in range(4)]
    assert max(share[0], share[2]) < 0.5 < min(share[1], share[3])
    inside = dataset.train_inputs[:, 0][(labels == 1) | (labels == 2)]
    assert inside.mean() == pytest.approx(1, abs=0.05)


def test_the_loss_ignores_borders_and_weighs_classes():
    loss = function(EXAMPLE / "shapes.py", "loss")
    logits = torch.zeros(1, 3, 1, 3)
    logits[0, 1, 0, 1] = math.log(2)  # ½ for class 1
    value = loss(logits, torch.tensor([[[0, 1, 255]]])).item()
    assert value == pytest.approx((0.5 * math.log(3) + math.log(2)) / 1.5)
