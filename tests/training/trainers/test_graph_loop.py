"""The loop with recorded steps; a recording on the CPU repeats the computation itself."""

import dataclasses
import logging

import pytest
import torch

from offbeat.algorithms import LocalPlan
from offbeat.training.flat_model import FlatModel
from offbeat.training.models import mlp
from offbeat.training.trainers.backend import Job
from offbeat.training.trainers.graph_loop import GraphBackend
from offbeat.training.trainers.loop import LoopBackend
from tests.training.conftest import assert_same, data_of, made
from tests.workloads import workload_of

SIZES = (7, 23, 3, 12, 1)
DATA = data_of(SIZES, 8, 8)
PLAN = LocalPlan(steps=3, batch_size=4, lr=0.1, momentum=0.9, clip_norm=1.0)


class Noisy(torch.nn.Module):
    """A model with dropout and a buffer that counts its calls."""

    def __init__(self):
        super().__init__()
        self.body = mlp((8, 8), 4, [6])
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, inputs):
        self.calls += 1
        return torch.nn.functional.dropout(self.body(inputs), 0.5, self.training) * self.calls


class Recorder:
    """Records a computation as a CUDA graph does: tried out first, then repeated on the same tensors."""

    def __init__(self, fails=False):
        self.recorded = 0
        self.replayed = 0
        self.fails = fails

    def __call__(self, compute):
        self.recorded += 1
        result = compute()
        if self.fails:
            raise RuntimeError("operation not permitted when stream is capturing")

        def replay():
            self.replayed += 1
            for kept, part in zip(result, compute(), strict=True):
                assert (kept is None) is (part is None)
                if kept is not None:
                    kept.copy_(part)
            return result

        return replay


def workload():
    return workload_of(made(lambda: FlatModel(Noisy())), **DATA)


def jobs():
    start = made(lambda: FlatModel(Noisy()).vector.clone(), seed=30)
    plans = [PLAN, dataclasses.replace(PLAN, batch_size=2), dataclasses.replace(PLAN, steps=5)]
    plans.append(dataclasses.replace(PLAN, steps=5, by_epochs=True))
    return [
        Job(client, visit, 0, start, plan, "delta") for visit, plan in enumerate(plans) for client in range(len(SIZES))
    ]


def test_results_are_those_of_the_loop_bit_for_bit():
    recorder = Recorder()
    trainer = GraphBackend(workload(), recorder)
    results, expected = trainer.train(jobs()), LoopBackend(workload()).train(jobs())
    assert_same(results, expected)
    assert recorder.recorded == len({min(size, limit) for size in SIZES for limit in (2, 4)})
    assert recorder.replayed == sum(job.plan.steps for job in jobs())
    assert (trainer.kernel, trainer.notes) == ("graph", ())


def test_a_model_that_cannot_be_recorded_is_trained_by_the_loop(caplog):
    recorder = Recorder(fails=True)
    trainer = GraphBackend(workload(), recorder)
    with caplog.at_level(logging.WARNING):
        results, expected = trainer.train(jobs()), LoopBackend(workload()).train(jobs())
    assert_same(results, expected)
    assert (recorder.recorded, recorder.replayed, trainer.kernel) == (1, 0, "loop")
    assert caplog.messages == [
        "the model's step cannot be recorded as a CUDA graph (RuntimeError: operation not permitted when stream is "
        "capturing): its kernels are launched one by one"
    ]


@pytest.mark.parametrize("register", ["register_forward_hook", "register_full_backward_hook"])
def test_hooks_of_python_are_called_in_each_step(register):
    model, recorder, calls = made(lambda: FlatModel(Noisy())), Recorder(), []
    getattr(model.module.body[3], register)(lambda *arguments: calls.append(1))
    trainer = GraphBackend(workload_of(model, **DATA), recorder)
    trainer.train(jobs()[:2])
    assert (len(calls), recorder.recorded, trainer.kernel) == (2 * PLAN.steps, 0, "loop")


def test_only_so_many_sizes_are_recorded(monkeypatch):
    monkeypatch.setattr("offbeat.training.trainers.graph_loop._MAX_GRAPHS", 1)
    recorder = Recorder()
    GraphBackend(workload(), recorder).train(jobs())
    assert recorder.recorded == 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA GPU")
def test_a_cuda_graph():  # also run by make test-gpu
    from offbeat.training.accelerator import Accelerator

    gpu = Accelerator(torch.device("cuda"))
    moved = [job._replace(start=job.start.cuda()) for job in jobs()]
    results = GraphBackend(workload().to(gpu)).train(moved)
    expected = LoopBackend(workload().to(gpu)).train(moved)
    for result, other in zip(results, expected, strict=True):
        torch.testing.assert_close(result.vector, other.vector, rtol=1e-4, atol=1e-6)
