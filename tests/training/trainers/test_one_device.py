"""Every trainer keeps to one device and reads from it once a batch."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from offbeat.algorithms import LocalPlan
from offbeat.training.flat_model import FlatModel
from offbeat.training.models import cnn, initial_randomness, mlp
from offbeat.training.objectives import model_loss
from offbeat.training.trainers import backend as backend_module
from offbeat.training.trainers.backend import Job
from offbeat.training.trainers.batched import vmap as vmap_module
from offbeat.training.trainers.batched.vmap import VmapBackend
from offbeat.training.trainers.loop import LoopBackend
from offbeat.training.workload import Examples, Objective, Workload
from tests.inputs_by_name import Sentences, named
from tests.training.separate_devices import META, SeparateDevices

MODELS = {
    "dense": lambda: mlp((3, 8, 8), 5, [6]),
    "convolutions": lambda: cnn((3, 8, 8), 5),
    "inputs by name": Sentences,
}
TRAINERS = {
    "loop": LoopBackend,
    "vmap": VmapBackend,
    "padded": lambda workload: VmapBackend(workload, batch_limit=4, padded=True),
}


@pytest.fixture
def readings(monkeypatch):
    """The shapes of what is read from the device; the numbers read are zeros."""
    shapes = []

    def read(numbers):
        assert numbers.device == META.device
        shapes.append(tuple(numbers.shape))
        return torch.zeros(numbers.shape, device="cpu").tolist()

    monkeypatch.setattr(backend_module, "read_numbers", read)
    monkeypatch.setattr(vmap_module, "read_numbers", read)
    return shapes


@pytest.mark.parametrize("with_data", [True, False], ids=["data there", "data elsewhere"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", TRAINERS)
def test_a_batch_stays_on_its_device_and_is_read_once(name, model, with_data, readings):
    is_named = model == "inputs by name"
    inputs = named(torch.ones(20, 6, dtype=torch.int64)) if is_named else torch.zeros(20, 3, 8, 8)
    examples = Examples(inputs, torch.zeros(20, dtype=torch.int64))
    shards = [np.arange(10), np.arange(10, 20)]
    with initial_randomness(1):
        flat = FlatModel(MODELS[model]())
    objective, augmentation = (Objective(model_loss), None) if is_named else (Objective(cross_entropy), "crop-and-flip")
    workload = Workload(flat, objective, examples, shards, 1, augmentation=augmentation)
    with SeparateDevices():
        workload = workload.to(META, with_data=with_data)
        trainer = TRAINERS[name](workload)
        start = workload.model.vector.clone()
        plan = LocalPlan(steps=2, batch_size=4, lr=0.1, momentum=0.9, weight_decay=0.1, clip_norm=1.0)
        jobs = [Job(client, 0, 0, start, plan, "delta") for client in (0, 1)]
        results = trainer.train(jobs)
    assert [result.vector.device for result in results] == [META.device] * 2
    assert len(readings) == 1


def test_the_mode_finds_mixed_devices():
    one, other = torch.zeros(2, device="meta"), torch.zeros(2)
    with SeparateDevices(), pytest.raises(AssertionError, match="mixes devices"):
        torch.dot(one, other)


@pytest.mark.parametrize("name", TRAINERS)
def test_class_weights_follow_the_model(name, readings):
    labels = torch.zeros(20, dtype=torch.int64)
    labels[3] = -100
    examples = Examples(torch.zeros(20, 3, 8, 8), labels)
    with initial_randomness(1):
        flat = FlatModel(MODELS["dense"]())
    objective = Objective(nn.CrossEntropyLoss(weight=torch.ones(5)))
    workload = Workload(flat, objective, examples, [np.arange(10), np.arange(10, 20)], 1)
    with SeparateDevices():
        workload = workload.to(META)
        start = workload.model.vector.clone()
        jobs = [Job(client, 0, 0, start, LocalPlan(steps=2, batch_size=4, lr=0.1), "delta") for client in (0, 1)]
        TRAINERS[name](workload).train(jobs)
    assert len(readings) == 1
    assert objective.loss.weight.device.type == "cpu"
