"""Dropout in the batched trainer is that of the plain one, client by client."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from offbeat_core.errors import OffbeatError
from torch import nn
from torch.nn import functional
from torch.nn.functional import cross_entropy

from offbeat.algorithms import LocalPlan
from offbeat.training import models
from offbeat.training.flat_model import FlatModel
from offbeat.training.trainers.backend import Job
from offbeat.training.trainers.batched import vmap
from offbeat.training.trainers.batched.vmap import VmapBackend
from offbeat.training.trainers.choice import make_trainer
from offbeat.training.trainers.loop import LoopBackend
from tests.training.conftest import assert_alike, assert_same, data_of
from tests.workloads import workload_of

PLAN = LocalPlan(steps=3, batch_size=5, lr=0.1)
DATA = data_of((7, 23, 3, 12, 1), 1, 8, 8)


class Dropping(nn.Module):
    """Does something to the outputs of a convolution, ``(batch, 4, 6, 6)``."""

    def __init__(self, drop):
        super().__init__()
        self.convolution = nn.Conv2d(1, 4, 3)
        self.linear = nn.Linear(144, 4)
        self.drop = drop

    def forward(self, inputs):
        return self.linear(self.drop(self.convolution(inputs)).flatten(1))


DROPS = {
    "dropout": nn.Dropout(0.4),
    "in place": lambda values: functional.dropout(values, 0.4, inplace=True) + values,
    "1d": lambda values: functional.dropout1d(values.flatten(2), 0.4),
    "1d, without batch": lambda values: functional.dropout1d(values.flatten(1), 0.4),
    "2d": nn.Dropout2d(0.4),
    "3d": lambda values: functional.dropout3d(values[:, :, None], 0.4),
    "3d, without batch": nn.Dropout3d(0.4),
    "alpha": nn.AlphaDropout(0.4),
    "alpha in place": lambda values: functional.alpha_dropout(values, 0.4, training=True, inplace=True) + values,
    "feature alpha": nn.FeatureAlphaDropout(0.4),
    "certain": nn.Dropout(1.0),
    "certain in place": lambda values: functional.dropout2d(values, 1.0, inplace=True) + values,
    "never": nn.Dropout(0.0),
    "off": lambda values: functional.dropout(values, 0.4, training=False),
    "two and none": nn.Sequential(nn.Dropout2d(0.3), nn.Dropout(0.0), nn.Dropout(0.2)),
    "transposed": lambda values: functional.dropout(values.permute(2, 0, 3, 1), 0.4).permute(1, 3, 0, 2),
    "of a constant": lambda values: values * functional.dropout(torch.ones(1, 4, 6, 1), 0.4),
    "for some sizes": lambda values: functional.dropout(values, 0.4) if len(values) > 3 else values,
}


@pytest.fixture(autouse=True)
def seeded():
    with models.initial_randomness(3):
        yield


def both(module, loss=cross_entropy):
    model = FlatModel(module)
    data = DATA | {"loss": loss}
    return LoopBackend(workload_of(model, **data)), VmapBackend(workload_of(model, **data)), model.vector.clone()


def jobs_of(start, plans):
    return [Job(number % 5, number // 2, 0, start, plan, "delta") for number, plan in enumerate(plans)]


@pytest.mark.parametrize("name", DROPS)
def test_each_kind_drops_what_the_plain_trainer_drops(name):
    loop, batched, start = both(Dropping(DROPS[name]))
    plans = [dataclasses.replace(PLAN, steps=1 + number % 3, batch_size=4 + number % 2) for number in range(10)]
    plans[4] = dataclasses.replace(PLAN, lr=(0.3, 0.2, 0.1), momentum=0.5)
    jobs = jobs_of(start, plans)
    assert_alike(batched.train(jobs), loop.train(jobs))


def test_dropout_in_the_loss_is_the_same_too():
    def loss(outputs, labels):
        return cross_entropy(functional.dropout(outputs, 0.5), labels)

    loop, batched, start = both(nn.Sequential(nn.Flatten(), nn.Linear(64, 4)), loss=loss)
    jobs = jobs_of(start, [PLAN] * 6)
    assert_alike(batched.train(jobs), loop.train(jobs))


def network():
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.2), nn.Linear(64, 16), nn.Tanh(), nn.Dropout(), nn.Linear(16, 4))


@settings(max_examples=12)
@given(
    lengths=st.lists(st.integers(1, 4), min_size=1, max_size=8),
    sizes=st.lists(st.sampled_from([2, 5]), min_size=8, max_size=8),
    cuts=st.sets(st.integers(1, 7)),
    order=st.permutations(range(8)),
)
def test_the_division_of_jobs_does_not_change_a_bit(lengths, sizes, cuts, order):
    _, batched, start = both(network())
    plans = [
        dataclasses.replace(PLAN, steps=steps, batch_size=size, lr=0.1 * (1 + number))
        for number, (steps, size) in enumerate(zip(lengths, sizes, strict=False))
    ]
    jobs = jobs_of(start, plans)
    whole = batched.train(jobs)
    places = [place for place in order if place < len(jobs)]
    for part in np.split(places, sorted(cut for cut in cuts if cut < len(jobs))):
        results = batched.train([jobs[place] for place in part])
        assert_same(results, [whole[place] for place in part])


class Changing(nn.Module):
    """Drops another way from its third forward pass on."""

    def __init__(self, later):
        super().__init__()
        self.later = later
        self.passes = 0

    def forward(self, values):
        self.passes += 1
        return self.later(values) if self.passes > 2 else functional.dropout(values, 0.3)


@pytest.mark.parametrize(
    "later",
    [
        lambda values: functional.dropout(values, 0.5),
        lambda values: functional.alpha_dropout(values, 0.3, training=True),
        lambda values: functional.dropout(values[:, :2], 0.3).repeat(1, 2, 1, 1),
        lambda values: functional.dropout(functional.dropout(values, 0.3), 0.3),
        lambda values: values,
    ],
    ids=["probability", "kind", "shape", "number", "none"],
)
def test_dropout_that_changes_from_step_to_step_is_refused(later):
    _, batched, start = both(Dropping(Changing(later)))
    batched.train(jobs_of(start, [dataclasses.replace(PLAN, steps=2)] * 2))
    with pytest.raises(OffbeatError, match=r"dropout differs from step to step: use trainer = 'loop'"):
        batched.train(jobs_of(start, [PLAN] * 2))


@pytest.mark.parametrize(
    "drop",
    [
        lambda values: values * torch.rand(1),
        lambda values: torch.dropout(values, 0.4, True),
        lambda values: functional.scaled_dot_product_attention(values, values, values, dropout_p=0.4),
    ],
    ids=["rand", "torch.dropout", "attention"],
)
def test_other_randomness_is_refused(drop):
    model = FlatModel(Dropping(drop))
    with pytest.raises(OffbeatError, match=r"trainer = 'vmap': .*random.*use 'loop'"):
        make_trainer("vmap", workload_of(model, **DATA), plan=PLAN)


def test_models_are_searched_for_dropout_once_per_minibatch_size(monkeypatch):
    made = []

    class Noted(vmap.Dropout):
        def __init__(self, seeds):
            made.append(len(seeds))
            super().__init__(seeds)

    monkeypatch.setattr(vmap, "Dropout", Noted)
    for module in (Dropping(nn.Tanh()), models.mlp((1, 8, 8), 4, [6])):
        _, batched, start = both(module)
        for size in (5, 5, 2, 5, 2):
            batched.train([Job(1, 0, 0, start, dataclasses.replace(PLAN, batch_size=size, mu=0.1), "delta")] * size)
    assert made == [5, 2]
