"""Losses and labels of all kinds in ``offbeat.simulate``."""

import random

import numpy as np
import pytest
import torch
from offbeat_core.errors import OffbeatError
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

import offbeat
from tests.training.conftest import made

DRAW = torch.Generator().manual_seed(1)
INPUTS = torch.randn(130, 8, generator=DRAW)
CLASSES = (INPUTS[:, 0] > INPUTS[:, 1]).long()


def pair(inputs, labels):
    return TensorDataset(inputs[:100], labels[:100]), TensorDataset(inputs[100:], labels[100:])


def simulate(model, data, **more):
    local = {"steps": 3, "batch_size": 10, "lr": 0.1}
    settings = {"population": 10, "local": local, "updates": 40, "evaluate_every_versions": 1, "progress": False}
    return offbeat.simulate(model, data, "fedbuff", **settings | more)


class Stateful(nn.Module):
    """A loss with a buffer, a counter and dropout."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))
        self.calls = 0
        self.dropout = nn.Dropout(0.2)

    def forward(self, outputs, labels):
        self.calls += 1
        loss = cross_entropy(self.dropout(outputs), labels)
        self.mean += 0.1 * (loss.detach() - self.mean)
        return loss + self.mean * outputs.square().mean() + outputs.mean() / self.calls

    def metric(self, outputs, labels):
        self.mean += 1
        self.calls += 1
        return self.mean.item() + torch.rand(()).item() + self(outputs, labels).item()


class Counting:
    """As few calls as a batched trainer allows: they count, and no more."""

    def __init__(self):
        self.calls = 0

    def __call__(self, outputs, labels):
        self.calls += 1
        return cross_entropy(outputs, labels) / self.calls

    metric = __call__


def plain():
    return nn.Linear(8, 2)


def convolution():
    return nn.Sequential(nn.Unflatten(1, (1, 2, 4)), nn.Conv2d(1, 4, 2), nn.Flatten(), nn.Linear(12, 2))


class Random(Counting):
    """It draws from the global generators of numpy and Python."""

    def __call__(self, outputs, labels):
        return cross_entropy(outputs * (np.random.rand() + random.random()), labels)  # noqa: NPY002 - as users do

    metric = __call__


TRAINERS = [
    ("loop", plain, Random),
    ("loop", plain, Stateful),
    ("processes", plain, Stateful),
    ("vmap", plain, Counting),
    ("unfold", convolution, Counting),
]


@pytest.mark.usefixtures("forked_workers")
@pytest.mark.parametrize(("trainer", "make", "loss"), TRAINERS)
def test_evaluations_change_no_bit_of_a_run_with_a_loss_that_has_state(trainer, make, loss):
    models = []
    for every, on_clients in ((1000, None), (1, 5)):
        objective = loss()
        history = simulate(
            lambda: made(make),
            pair(INPUTS, CLASSES),
            trainer=trainer,
            loss=objective,
            metrics={"own": objective.metric},
            population={"clients": 10, "holdout": 0.2},
            evaluate_every_versions=every,
            evaluate_on_clients=on_clients,
        )
        assert len(history) == (2 if every > 1 else 5)
        assert history.own.nunique() > 1
        models.append(nn.utils.parameters_to_vector(history.model.parameters()))
        assert objective.calls == 0
    assert torch.equal(*models)
    assert (models[0] - nn.utils.parameters_to_vector(made(make).parameters())).norm() > 1e-2


@pytest.mark.parametrize("number", [255, 3])
def test_a_class_number_that_the_loss_ignores_needs_no_output(number):
    labels = INPUTS[:, :3].argmax(dim=1)
    labels[::4] = number
    loss = nn.CrossEntropyLoss(ignore_index=number)
    history = simulate(lambda: made(lambda: nn.Linear(8, 3)), pair(INPUTS, labels), loss=loss, updates=10)
    with torch.no_grad():
        assert history.loss.iloc[-1] == pytest.approx(loss(history.model(INPUTS[100:]), labels[100:]).item(), rel=1e-5)


def test_a_client_whose_loss_is_nan_since_no_label_counts_is_named():
    labels = CLASSES.clone()
    labels[:10] = -100

    def by_targets(outputs, labels):
        return cross_entropy(outputs, labels, reduction="sum") / (labels != -100).sum()

    data = pair(INPUTS, labels)
    data[0].users = [number // 10 for number in range(100)]
    users = {"clients": 10, "partition": {"name": "by_user"}}
    with pytest.raises(OffbeatError, match=r"its loss is nan; .*does none of its labels count in your loss\?"):
        simulate(plain, data, loss=by_targets, population=users)
    nothing = pair(INPUTS, CLASSES)[0], TensorDataset(INPUTS[100:], CLASSES[100:] * 0 - 100)
    with pytest.raises(OffbeatError, match=r"version 0 has the test loss nan: .*let some labels count in the loss"):
        simulate(plain, nothing, loss=by_targets)


SEVERAL = ["accuracy", "macro_f1"]
KINDS = {
    "masks with ignored pixels": (
        lambda: nn.Sequential(nn.Unflatten(1, (2, 2, 2)), nn.Conv2d(2, 3, 1)),
        (INPUTS.view(-1, 2, 2, 2)[:, 0] > 0).long().where(torch.rand(130, 2, 2, generator=DRAW) > 0.3, 255),
        nn.CrossEntropyLoss(ignore_index=255),
        ["iou"],
    ),
    "tokens": (
        lambda: nn.Sequential(nn.Linear(8, 15), nn.Unflatten(1, (3, 5))),
        torch.randint(3, (130, 5), generator=DRAW),
        "cross_entropy",
        ["accuracy", "perplexity"],
    ),
    "several labels, floats": (lambda: nn.Linear(8, 3), (INPUTS[:, :3] > 0).float(), "bce", SEVERAL),
    "several labels, integers": (lambda: nn.Linear(8, 3), (INPUTS[:, :3] > 0).int(), "bce", SEVERAL),
    "several labels, booleans": (lambda: nn.Linear(8, 3), INPUTS[:, :3] > 0, "bce", SEVERAL),
    "signs": (
        lambda: nn.Sequential(nn.Linear(8, 1), nn.Flatten(0)),
        2 * CLASSES - 1,
        lambda outputs, labels: (1 - outputs * labels).clamp(min=0).mean(),
        [],
    ),
    "classes with examples that have none": (
        lambda: nn.Linear(8, 2),
        CLASSES.where(torch.rand(130, generator=DRAW) > 0.5, -100),
        "cross_entropy",
        ["accuracy"],
    ),
    "probabilities": (
        lambda: nn.Linear(8, 2),
        nn.functional.one_hot(CLASSES).float() * 0.8 + 0.1,
        "cross_entropy",
        ["accuracy"],
    ),
}


@pytest.mark.parametrize("trainer", ["loop", "vmap"])
@pytest.mark.parametrize("kind", KINDS)
def test_labels_of_every_kind_are_learned_and_have_their_metrics(kind, trainer, caplog):
    make, labels, loss, metrics = KINDS[kind]
    history = simulate(lambda: made(make), pair(INPUTS, labels), loss=loss, trainer=trainer, updates=100)
    chance = "tokens" in kind  # random tokens cannot be predicted
    assert history.loss.iloc[-1] < history.loss.iloc[0] * (1.1 if chance else 0.9)
    assert list(history.columns[history.columns.get_loc("loss") + 1 :]) == metrics
    assert np.isfinite(history[["loss", *metrics]]).all(axis=None)
    assert ("no metric is measured but the loss" in caplog.text) is (not metrics)


def test_a_client_without_any_target_does_not_end_the_run():
    labels = CLASSES.clone()
    labels[:100:10] = -100
    labels[1:100:10] = -100
    data = pair(INPUTS, labels)
    data[0].users = [number % 10 for number in range(100)]  # the first two have no target
    users = {"clients": 10, "partition": {"name": "by_user"}, "holdout": 0.2}
    history = simulate(lambda: nn.Linear(8, 2), data, population=users, evaluate_on_clients=10, metrics=[])
    assert set(history.events.client) >= {0, 1}
    assert history.clients_evaluated.tolist()[1:] == [8.0] * (len(history) - 1)


@pytest.mark.parametrize("name", ["dirichlet", "one_class", "mixing"])
def test_partitions_by_class_need_one_class_each(name):
    more = {"dirichlet": {"alpha": 1.0}, "mixing": {"mu": 0.5}}.get(name, {})
    with pytest.raises(OffbeatError) as caught:
        simulate(
            lambda: nn.Linear(8, 3),
            pair(INPUTS, (INPUTS[:, :3] > 0).long()),
            loss="bce",
            population={"clients": 10, "partition": {"name": name, **more}},
        )
    assert "needs one class for each example, a whole number from 0, but the labels of data are int64 of" in str(
        caught.value
    )


def test_a_test_set_without_targets_is_refused_at_once():
    labels = CLASSES.clone()
    labels[100:] = -100
    with pytest.raises(OffbeatError, match=r"^the test set has no target: its labels are all -100"):
        simulate(lambda: nn.Linear(8, 2), pair(INPUTS, labels))


def test_a_client_without_positives_keeps_its_loss_and_accuracy():
    labels = (INPUTS[:, :3] > 0).float()
    labels[0:100:2] = 0
    data = pair(INPUTS, labels)
    data[0].users = [number % 2 for number in range(100)]
    users = {"clients": 2, "partition": {"name": "by_user"}, "holdout": 0.5}

    def recall(outputs, labels):
        return ((outputs > 0) & (labels > 0)).sum() / (labels > 0).sum()

    history = simulate(
        lambda: nn.Linear(8, 3), data, loss="bce", population=users, evaluate_on_clients=2, metrics={"recall": recall}
    )
    assert (history.clients_evaluated == 2).all()
    assert np.isfinite(history[["client_loss", "client_recall"]]).all(axis=None)
    assert (history.client_recall == history.client_recall_worst).all()  # of the one client that has positives
