import os

import pytest
import torch
from offbeat_core.errors import OffbeatError
from torch import nn

from offbeat.algorithms import LocalPlan
from offbeat.training.flat_model import FlatModel
from offbeat.training.models import cnn
from offbeat.training.trainer_names import TRAINERS
from offbeat.training.trainers import choice
from offbeat.training.trainers.batched.vmap import VmapBackend
from offbeat.training.trainers.choice import available_processors, choose_trainer, make_trainer, measure_trainers
from offbeat.training.trainers.distributed.process_pool import ProcessPool
from offbeat.training.trainers.distributed.ray_pool import RayPool
from offbeat.training.trainers.loop import LoopBackend
from tests.training.conftest import data_of, made
from tests.training.separate_devices import META
from tests.training.trainers.conftest import PLAN, Noisy, Recurrent, linear
from tests.workloads import workload_of


class Convolution(nn.Module):
    """Has a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(1, 3, 6)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.convolution(inputs[:, None])[:, :, 0]


def frozen():
    """Return a model of which less than the limit is trained, as with LoRA."""
    return nn.Sequential(nn.Linear(6, 2**19).requires_grad_(False), nn.Linear(2**19, 3))


def test_each_name_makes_its_trainer(choose, monkeypatch):
    monkeypatch.setattr("offbeat.training.trainers.distributed.ray_pool.check_ray", lambda: None)
    assert {name: type(choose(name, linear()).backend) for name in TRAINERS} == {
        "auto": VmapBackend,
        "loop": LoopBackend,
        "vmap": VmapBackend,
        "unfold": VmapBackend,
        "processes": ProcessPool,
        "ray": RayPool,
    }


def test_a_loop_with_several_workers_may_switch_to_processes(choose):
    for name in ("auto", "loop"):
        trainer = choose(name, made(Convolution), workers=2)
        assert type(trainer.backend) is LoopBackend
        assert type(trainer._start_processes()) is ProcessPool
        assert choose(name, made(Convolution), workers=1)._start_processes is None


@pytest.mark.parametrize(("name", "expected"), [("auto", "vmap"), ("vmap", "vmap"), ("unfold", "unfold")])
def test_batches_with_several_workers_may_switch_to_processes_of_batches(choose, name, expected):
    trainer = choose(name, linear(), workers=2)
    alone = choose(name, linear(), workers=1)
    assert (trainer.name, trainer.kernel, trainer.batch_limit) == (expected, alone.kernel, alone.batch_limit)
    processes = trainer._start_processes()
    assert type(processes) is ProcessPool
    assert (processes.name, processes.kernel, processes._largest) == (expected, alone.kernel, alone.batch_limit)


def test_there_are_no_processes_on_windows(choose, monkeypatch):
    monkeypatch.setattr("offbeat.training.trainers.choice.os.name", "nt")
    trainer = choose("auto", made(Convolution), workers=2)
    assert (type(trainer.backend), trainer._start_processes) == (LoopBackend, None)


@pytest.mark.parametrize(
    ("make", "inputs", "name"),
    [
        (lambda: linear(100), 100, "vmap"),
        (lambda: nn.Sequential(nn.Linear(80_000, 3)), 80_000, "vmap"),  # by the kernel
        (lambda: nn.Sequential(nn.Linear(90_000, 3)), 90_000, "loop"),  # too large for the kernel to pay
        (lambda: nn.Sequential(nn.Linear(6, 3), nn.Tanh()), 6, "loop"),
        (Convolution, 6, "loop"),
        (Recurrent, 6, "loop"),
        (Noisy, 6, "loop"),
    ],
)
def test_the_model_decides_the_automatic_choice(make, inputs, name, choose):
    assert choose("auto", made(make), inputs=inputs).name == name


@pytest.mark.parametrize(("inputs", "steps", "name"), [(10_000, 1, "vmap"), (12_000, 1, "loop"), (12_000, 2, "vmap")])
def test_few_steps_do_not_make_up_for_copying_large_models(inputs, steps, name, choose):
    plan = LocalPlan(steps=steps, batch_size=4, lr=0.1)
    assert choose("auto", made(lambda: linear(inputs)), plan, inputs=inputs).name == name


@pytest.mark.parametrize(
    ("make", "at_work", "name"),
    [
        (lambda: dropout(nn.ReLU()), 20, "vmap"),
        (lambda: dropout(nn.ReLU()), 19, "loop"),  # a batch of one takes as many operations as a large one
        (lambda: dropout(nn.Tanh()), 50, "loop"),
        (lambda: nn.Sequential(Noisy(), nn.Dropout()), 50, "loop"),
    ],
)
def test_dropout_is_batched_where_many_clients_are_at_work(make, at_work, name):
    workload = workload_of(FlatModel(made(make)), **data_of((10, 2, 18), 6, classes=3))
    assert make_trainer("auto", workload, plan=PLAN, at_work=at_work).name == name


def dropout(activation):
    return nn.Sequential(nn.Linear(6, 5), activation, nn.Dropout(0.5), nn.Linear(5, 3))


def test_there_is_at_least_one_processor():
    assert 1 <= available_processors() <= os.cpu_count()


@pytest.mark.parametrize(
    ("make", "inputs", "limit"),
    [
        (linear, 6, 64),
        (linear, 10_000, 17),
        (linear, 30_000, 8),
        (lambda inputs: nn.Sequential(nn.Linear(inputs, 3), nn.Tanh()), 6, 128),
        (lambda inputs: nn.Sequential(nn.Linear(inputs, 3), nn.Tanh()), 2_000, 87),
        (lambda inputs: nn.Sequential(nn.Linear(inputs, 3), nn.Tanh()), 10_000, 32),
    ],
)
def test_large_models_are_trained_in_small_batches(make, inputs, limit):
    model = made(lambda: FlatModel(make(inputs)))
    trainer = make_trainer(
        "vmap", workload_of(model, **data_of((1, 1), inputs)), plan=LocalPlan(steps=1, batch_size=1, lr=0.1)
    )
    assert trainer.batch_limit == limit


class TestOnAGpu:
    """On torch's ``meta`` device, which has no data; whether a model has a batched form is tested elsewhere."""

    @pytest.fixture(autouse=True)
    def _every_model_has_a_batched_form(self, monkeypatch):
        monkeypatch.setattr(choice, "batching_problem", lambda *_: None)

    @pytest.mark.parametrize(
        ("make", "name", "reason"),
        [
            (linear, "vmap", "with 21 parameters many clients fit on a GPU at once"),
            (lambda: nn.Sequential(nn.Linear(6, 3), nn.Tanh()), "vmap", "with 21 parameters many"),
            (lambda: nn.Sequential(nn.Conv2d(1, 3, 1), nn.Flatten()), "unfold", "with 6 parameters many"),
            (lambda: nn.Sequential(nn.Linear(6, 2**19)), "loop", "a GPU trains 3,670,016 parameters faster one client"),
            (frozen, "loop", "a GPU trains 5,242,883 parameters faster one client"),
        ],
    )
    def test_the_choice_is_by_the_model(self, make, name, reason):
        chosen, why = choose_trainer(on_meta(made(make)), PLAN, 1)
        assert chosen == name
        assert why.startswith(reason)

    def test_a_model_without_a_batched_form_is_trained_by_the_loop(self, monkeypatch):
        monkeypatch.setattr(choice, "batching_problem", lambda *_: "LSTM has no batched form")
        assert choose_trainer(on_meta(linear()), PLAN, 1) == (
            "loop",
            "the model cannot be trained in batches: LSTM has no batched form",
        )

    @pytest.mark.parametrize(
        ("parameters", "clients", "limit"),
        [(6, 2_000, 1024), (6, 50, 50), (2**17, 2_000, 2**26 // (3 * 2**17 + 3)), (2**24, 50, 2), (6, 1, 2)],
        ids=str,
    )
    def test_batches_are_large_and_of_one_shape_but_no_larger_than_there_are_clients(self, parameters, clients, limit):
        trainer = make_trainer("vmap", on_meta(linear(parameters), clients), plan=PLAN)
        assert trainer.batch_limit == trainer.backend._smallest == limit

    def test_there_are_no_processes(self):
        assert make_trainer("loop", on_meta(linear()), plan=PLAN, workers=2)._start_processes is None

    def test_processes_are_for_cpus(self):
        with pytest.raises(OffbeatError, match="trainer = 'processes' is for CPUs: use 'auto' on meta"):
            make_trainer("processes", on_meta(linear()), plan=PLAN)


def on_meta(module, clients=2):
    return workload_of(FlatModel(module), **data_of((1,) * clients, 6, classes=3)).to(META)


def test_every_trainer_is_measured_and_the_model_stays():
    workload = workload_of(FlatModel(linear()), **data_of((10, 2), 6, classes=3))
    before = workload.model.vector.clone()
    rates = dict(measure_trainers(workload, PLAN, 4))
    assert rates.keys() == {"loop", "vmap"}
    assert all(rate > 0 for rate in rates.values())
    assert workload.model.vector.equal(before)


def test_no_more_clients_are_trained_together_than_are_at_work(monkeypatch):
    batches = []
    train = VmapBackend.train
    monkeypatch.setattr(VmapBackend, "train", lambda self, jobs: batches.append(len(jobs)) or train(self, jobs))
    workload = workload_of(FlatModel(linear()), **data_of((10, 2), 6, classes=3))
    dict(measure_trainers(workload, PLAN, 3))
    assert batches[-4:] == [3] * 4  # the others are tries


def test_convolutions_may_be_unfolded(monkeypatch):
    monkeypatch.setattr(choice, "_rate", lambda *_: 1.0)
    workload = workload_of(FlatModel(made(lambda: cnn((1, 4, 4), 3))), **data_of((10, 2), 1, 4, 4, classes=3))
    assert [name for name, _ in measure_trainers(workload, PLAN, 4)] == ["loop", "vmap", "unfold"]


def test_a_trainer_that_cannot_train_the_model_says_why():
    workload = workload_of(FlatModel(made(Recurrent)), **data_of((10, 2), 1, 6, classes=3))
    measured = dict(measure_trainers(workload, PLAN, 4))
    assert measured["vmap"] == (
        "trainer = 'vmap': this model cannot be trained in batches (LSTM has no batched form): use 'loop'"
    )
