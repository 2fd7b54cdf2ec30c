"""Wrong arguments of ``offbeat.simulate``: each is one line."""

import re
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from offbeat_core.errors import OffbeatError
from torch import nn
from torch.utils.data import TensorDataset

from offbeat.algorithms import AsyncCommSGD, FedAvg, FedBuff, FedNova, LocalPlan
from offbeat.algorithms.components import Compression
from offbeat.algorithms.components.schedules.patterns import own


class FailsLater(FedBuff):
    def weigh(self, update):
        return 1.0 if self.version < 2 else 1.0 / (self.version - self.version)


class ForgetsLater(FedBuff):
    def weigh(self, update):  # noqa: RET503 - the mistake
        if self.version < 2:
            return 1.0


def failing():
    raise RuntimeError("first line\nsecond line")


def plan(compressor, **parameters):
    return LocalPlan(2, 8, 0.1, compression=Compression(compressor, tuple(parameters.items())))


LINE = TensorDataset(torch.zeros(120, 1), torch.zeros(120, 1))

FEW = TensorDataset(torch.linspace(-1, 1, 16).reshape(16, 1), torch.arange(16) % 2)


def normalising():
    return nn.Sequential(nn.Linear(1, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


SINGLE = {"model": normalising, "data": (FEW, FEW), "batch_norm": "local", "population": 12}

MISTAKES = [
    ({"virtual_seconds": np.timedelta64(3600, "ns")}, ["virtual_seconds = '3600 nanoseconds': must be a valid number"]),
    (
        SINGLE,
        ["holds one example, but the model or the loss needs minibatches of at least two: use another partition, or G"],
    ),
    (
        SINGLE | {"population": 3, "local": {"steps": 2, "batch_size": 1, "lr": 0.1}},
        ["local.batch_size is 1, but the model", "Expected more than 1 value per channel"],
    ),
    (
        SINGLE | {"population": 3, "local": {"epochs": 1, "batch_size": 5, "lr": 0.1}},
        ["an epoch of client ", " ends with one example, but the model", "change local.batch_size, or GroupNorm"],
    ),
    (SINGLE | {"model": lambda: nn.Linear(2, 2)}, ["the model cannot take inputs of shape (1, 1)"]),
    (
        SINGLE | {"data": (FEW, (torch.ones(1, 1), torch.ones(1).long())), "population": 3},
        ["evaluation of a single example: the model or the loss failed: ValueError: Expected more than 1 value"],
    ),
    ({"evaluate_on_clients": 3}, ["evaluate_on_clients needs held-out examples: set population.holdout"]),
    ({"model": 3}, ["model = 3", "torch.nn.Module"]),
    ({"model": lambda: 3}, ["model made a int", "torch.nn.Module"]),
    (
        {"model": failing},
        ["model failed: RuntimeError: first line (", f"{Path(__file__)}:{failing.__code__.co_firstlineno + 1})"],
    ),
    ({"model": nn.Linear(64, 10)}, ["the model cannot take inputs"]),
    ({"data": "digit"}, ["data = 'digit'", "did you mean 'digits'?", "or pass your own"]),
    ({"data": 3}, ["data: got a value of type int", "pair (train, test)"]),
    ({"algorithm": "fedbuf"}, ["unknown algorithm 'fedbuf'", "did you mean 'fedbuff'?"]),
    ({"algorithm": FedBuff}, ["algorithm = ", "FedBuff(buffer_size=5)"]),
    ({"algorithm": FedAvg(cohort=13)}, ["cohort", "13", "12"]),
    ({"population": "many"}, ["population = 'many'", "table"]),
    ({"population": True}, ["population"]),
    ({"population": {"client": 3}}, ["unknown key population.client", "did you mean 'clients'?"]),
    ({"population": {"clients": 12, "when_away": "lose"}}, ["needs server.lease_seconds"]),
    ({"local": {"steps": 2, "batch_size": 8, "lr": 0}}, ["local.lr = 0", "greater than 0"]),
    ({"local": 0.1}, ["local = 0.1", "table"]),
    ({"local": {"steps": 2, "batch_size": 8, "lr": 0.1, "lr_decay": 0.99}}, ["local.lr_decay = 0.99", "table"]),
    ({"local": LocalPlan(2, 8, 0.1, optimizer="adamw"), "algorithm": FedNova()}, ["FedNova's a_i", "optimizer"]),
    ({"local": plan("topk")}, ["local.compression.name = 'topk'", "did you mean 'top_k'?"]),
    ({"local": LocalPlan(2, 8, 0.1, compression=cast("Any", "top_k"))}, ["local.compression = 'top_k'", "Compression"]),
    (
        {"algorithm": AsyncCommSGD(pattern=own(lambda _, last, n: last + 1 if last < 3 else 0, 3))},
        ["pattern own: client ", "is to talk next in round 0, which must be a whole number greater than "],
    ),
    ({"server": {"lease": 3}}, ["unknown key server.lease"]),
    ({"server": 3}, ["server = 3", "table"]),
    ({"privacy": 3}, ["privacy = 3", "table"]),
    ({"privacy": {"clip": 3}}, ["unknown key privacy.clip"]),
    ({"privacy": {"clip_norm": 1.0}, "algorithm": "fedfa"}, ["[privacy] does not work with fedfa"]),
    ({"evaluate_every_seconds": 0}, ["evaluate_every_seconds = 0"]),
    ({"evaluate_every_seconds": None}, ["set exactly one of evaluate_every_seconds and evaluate_every_versions"]),
    ({"virtual_seconds": None}, ["set virtual_seconds, versions or updates"]),
    ({"versions": 1.5}, ["versions = 1.5"]),
    ({"loss": "crossentropy"}, ["loss = 'crossentropy'", "did you mean 'cross_entropy'?", "or pass your own"]),
    ({"loss": 3}, ["loss = 3", "function"]),
    ({"loss": nn.CrossEntropyLoss}, ["loss = CrossEntropyLoss: is a class: pass a module, CrossEntropyLoss()"]),
    ({"loss": nn.MSELoss(reduction="sum"), "metrics": []}, ["loss = MSELoss: must return the mean"]),
    ({"patience": 0}, ["patience = 0"]),
    ({"target": 0.5, "stop_metric": "recall"}, ["stop_metric", "recall"]),
    ({"evaluate_every_second": 3}, ["unknown argument evaluate_every_second: did you mean 'evaluate_every_seconds'?"]),
    ({"rounds": 3}, ["unknown argument rounds: did you mean 'versions'?"]),
    ({"loss": lambda o: o.mean()}, ["the loss cannot take outputs"]),
    ({"metrics": ["acuracy"]}, ["metrics = ['acuracy']", "did you mean 'accuracy'?"]),
    ({"metrics": ["training_los"]}, ["metrics = ['training_los']", "did you mean 'training_loss'?"]),
    ({"metrics": [nn.functional.mse_loss]}, ["metrics: must be names, or a dict of functions"]),
    ({"metrics": 5}, ["metrics: must be names"]),
    ({"metrics": {"f1": 3}}, ["metrics: 'f1'", "function"]),
    ({"metrics": {"my:f1": len}}, ["metrics: 'my:f1'", "without a colon"]),
    (
        {"metrics": {"loss": lambda *_: 1.0}},
        ["metrics = ['loss']", "names must differ from each other and from bytes_down, "],
    ),
    ({"metrics": {"f1": lambda *_: "high"}}, ["the metric f1 must be one number"]),
    ({"batch_norm": "global"}, ["batch_norm = 'global'", "'refuse' or 'local'"]),
    ({"augmentation": "crop"}, ["augmentation = 'crop'", "must be 'crop-and-flip'"]),
    ({"augmentation": ["crop-and-flip"]}, ["augmentation = ['crop-and-flip']", "must be 'crop-and-flip'"]),
    (
        {"augmentation": "crop-and-flip", "model": lambda: nn.Linear(1, 1), "data": (LINE, LINE), "loss": "mse"},
        ["augmentation = 'crop-and-flip' is for images", "float32 of shape (1,)", "leave it out"],
    ),
    (
        {"algorithm": FailsLater(buffer_size=2, concurrency=4), "virtual_seconds": None, "versions": 4},
        ["fedbuff: weigh failed: ZeroDivisionError: float division by zero (", "test_simulate_mistakes.py:"],
    ),
    (
        {"algorithm": ForgetsLater(buffer_size=2, concurrency=4), "virtual_seconds": None, "versions": 4},
        ["fedbuff: weigh must return", "did it forget return? If the", "return DOES_NOT_COUNT (", "_mistakes.py:"],
    ),
    ({"seed": -1}, ["seed = -1", "greater than or equal to 0"]),
    ({"seed": 1.5}, ["seed = 1.5", "valid integer"]),
]


@pytest.mark.parametrize(("changes", "parts"), MISTAKES)
def test_a_mistake_is_one_line(changes, parts, simulate, tmp_path):
    with pytest.raises(OffbeatError) as caught:
        simulate(**changes)
    assert all(part in str(caught.value) for part in parts)
    assert not re.search(r"\b(stop|evaluate)[.:]", str(caught.value))


def test_all_mistakes_come_at_once(simulate):
    with pytest.raises(OffbeatError) as caught:
        simulate(seed=-1, evaluate_every_seconds=0, virtual_seconds=None)
    assert [line.partition(" = ")[0] for line in caught.value.lines] == [
        "seed", "set virtual_seconds, versions or updates", "evaluate_every_seconds",
    ]  # fmt: skip
