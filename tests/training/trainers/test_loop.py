import dataclasses
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch
from offbeat_core.errors import OffbeatError
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from offbeat.algorithms import LocalPlan
from offbeat.algorithms.components import Compression
from offbeat.training.evaluation import Evaluator
from offbeat.training.flat_model import FlatModel
from offbeat.training.trainers.backend import Job
from offbeat.training.trainers.loop import LoopBackend
from offbeat.uniform_numbers import example_order
from tests.training.conftest import SEED, assert_same, made
from tests.workloads import workload_of

PLAIN = LocalPlan(steps=6, batch_size=4, lr=0.3)
PLANS = {
    "plain": PLAIN,
    "momentum": LocalPlan(steps=6, batch_size=4, lr=0.3, momentum=0.8),
    "weight decay": LocalPlan(steps=6, batch_size=4, lr=0.3, weight_decay=0.2),
    "lr a step": LocalPlan(steps=4, batch_size=4, lr=(0.5, 0.01, 0.2, 1.0)),
    "clipped": LocalPlan(steps=6, batch_size=4, lr=0.3, clip_norm=0.2),
    "hardly clipped": LocalPlan(steps=6, batch_size=4, lr=0.3, clip_norm=1e3),
    "proximal": LocalPlan(steps=6, batch_size=4, lr=0.3, mu=0.9),
    "proximal, clipped": LocalPlan(steps=6, batch_size=4, lr=1.0, mu=1.9, clip_norm=0.3, weight_decay=0.1),
    "all": LocalPlan(steps=3, batch_size=9, lr=(0.5, 0.1, 0.2), momentum=0.5, weight_decay=0.1, clip_norm=0.3),
    "adamw": LocalPlan(steps=6, batch_size=4, lr=0.05, optimizer="adamw"),
    "adamw, all": LocalPlan(3, 9, lr=(0.05, 0.1, 0.02), weight_decay=0.2, clip_norm=0.3, optimizer="adamw"),
    "whole data": LocalPlan(steps=5, batch_size=100, lr=0.3),
    "epochs": LocalPlan(steps=14, batch_size=4, lr=0.3, by_epochs=True),
}


def visit_with_torch(module, inputs, labels, shard, job):
    """Do a visit with ``torch.optim`` on a module of its own; return its end and its mean loss."""
    plan = job.plan
    parameters = list(module.parameters())
    with torch.no_grad():
        nn.utils.vector_to_parameters(job.start.clone(), parameters)
    begin = [p.detach().clone() for p in parameters]
    size = min(plan.batch_size, len(shard))
    order = shard[example_order(SEED, job.client, job.visit, len(shard), plan.steps * size).numpy()]
    batches = [order[step * size : (step + 1) * size] for step in range(plan.steps)]
    if plan.by_epochs:
        epochs = [order[first : first + len(shard)] for first in range(0, len(order), len(shard))]
        batches = [epoch[first : first + size] for epoch in epochs for first in range(0, len(epoch), size)]
    if plan.optimizer == "adamw":
        optimizer = torch.optim.AdamW(parameters, weight_decay=plan.weight_decay)
    else:
        optimizer = torch.optim.SGD(parameters, lr=1.0, momentum=plan.momentum, weight_decay=plan.weight_decay)
    losses = []
    for step in range(plan.steps):
        batch = batches[step]
        optimizer.param_groups[0]["lr"] = plan.lr[step] if isinstance(plan.lr, tuple) else plan.lr
        optimizer.zero_grad()
        loss = cross_entropy(module(inputs[batch]), labels[batch])
        losses.append(loss.item() * len(batch))
        distance = sum(((p - b) ** 2).sum() for p, b in zip(parameters, begin, strict=True))
        slope = 0 if job.offset is None else job.offset @ nn.utils.parameters_to_vector(parameters)
        (loss + plan.mu / 2 * distance + slope).backward()
        if plan.clip_norm is not None:
            nn.utils.clip_grad_norm_(parameters, plan.clip_norm)
        optimizer.step()
    return nn.utils.parameters_to_vector(parameters).detach(), sum(losses) / sum(map(len, batches[: plan.steps]))


class TestVisit:
    @pytest.mark.parametrize("name", PLANS)
    @pytest.mark.parametrize(("client", "visit"), [(0, 0), (1, 3)])
    def test_equals_the_visit_done_with_torch_optim(self, name, client, visit, trainer, job, network, data):
        self._assert_equal(job(PLANS[name], client, visit), trainer, network, data)

    @pytest.mark.parametrize("name", ["plain", "momentum", "proximal, clipped"])
    def test_an_offset_is_a_slope_of_the_loss(self, name, trainer, job, network, data):
        task = job(PLANS[name], 1, 2)
        with_offset = task._replace(offset=torch.linspace(-1, 1, len(task.start)))
        self._assert_equal(with_offset, trainer, network, data)
        (plain,), (other,) = trainer().train([task]), trainer().train([with_offset])
        assert (plain.vector - other.vector).norm() > 0.1

    def _assert_equal(self, task, trainer, network, data):
        end, loss = visit_with_torch(network(), data["inputs"], data["labels"], data["shards"][task.client], task)
        (result,) = trainer().train([task])
        torch.testing.assert_close(result.vector, end, rtol=0, atol=2e-6)
        assert result.loss == pytest.approx(loss, abs=1e-6)
        assert (result.vector - task.start).norm() > 0.01

    def test_clients_visits_and_seeds_differ(self, trainer, job):
        ends = [
            trainer(seed=seed).train([job(PLAIN, client, visit)])[0].vector
            for seed, client, visit in [(5, 1, 0), (5, 1, 1), (5, 3, 0), (6, 1, 0)]
        ]
        assert all(not torch.equal(one, other) for one, other in permutations(ends, 2))

    def test_torchs_own_generator_neither_matters_nor_changes(self, trainer, job):
        here = trainer(dropout=0.5)
        first = here.train([job(PLAIN)])[0].vector
        before = torch.get_rng_state()
        torch.manual_seed(99)
        disturbed = torch.get_rng_state()
        again = here.train([job(PLAIN)])[0].vector
        assert torch.equal(torch.get_rng_state(), disturbed)
        torch.set_rng_state(before)
        assert torch.equal(again, first)

    def test_dropout_depends_on_seed_client_and_visit(self, trainer, job, inputs, labels):
        """With one example a client there is no other randomness."""

        def end(seed: int, client: int, visit: int, dropout: float) -> tuple[float, ...]:
            shards = [np.zeros(1, np.int64)] * 4
            single = trainer(dropout=dropout, seed=seed, inputs=inputs[:1], labels=labels[:1], shards=shards)
            return tuple(single.train([job(PLAIN, client, visit)])[0].vector.tolist())

        visits = [(5, 1, 0), (5, 1, 1), (5, 2, 0), (6, 1, 0)]
        assert len({end(*visit, dropout=0.5) for visit in visits}) == 4
        assert len({end(*visit, dropout=0.0) for visit in visits}) == 1
        assert end(5, 1, 0, dropout=0.5) == end(5, 1, 0, dropout=0.5)

    def test_an_evaluation_before_a_visit_does_not_change_it(self, trainer, job, network, inputs, labels):
        expected = trainer(dropout=0.5).train([job(PLAIN)])
        model = FlatModel(network(dropout=0.5))
        evaluate = Evaluator(model, loss=cross_entropy, metrics={}, inputs=inputs, labels=labels, seed=1)
        evaluate(torch.zeros_like(model.vector))
        assert_same(trainer(model=model).train([job(PLAIN)]), expected)

    def test_nan_is_passed_on(self, trainer, job):
        """Clipping does not hide a gradient that is not finite."""
        plan = LocalPlan(steps=2, batch_size=4, lr=0.1, clip_norm=1.0)
        (result,) = trainer(loss=lambda outputs, _: (outputs * torch.inf).mean()).train([job(plan)])
        assert not result.vector.isfinite().all()


class TestPayload:
    def test_compression_does_not_change_the_result(self, trainer, job):
        small = dataclasses.replace(PLAIN, compression=Compression("top_k", (("share", 0.1),)), error_feedback=True)
        whole, compressed = trainer().train([job(PLAIN, payload="delta"), job(small, payload="delta")])
        assert torch.equal(whole.vector, compressed.vector)

    @pytest.mark.parametrize("payload", ["delta", "params"])
    def test_start_result_and_model_do_not_share_memory(self, payload, trainer, job, network):
        model = FlatModel(network())
        here = trainer(model=model)
        # The most dangerous start: the model's own buffer would be trained away under the job.
        task = job(PLANS["proximal"], payload=payload)
        before = task.start.clone()
        (result,) = here.train([task])
        kept = result.vector.clone()
        assert torch.equal(task.start, before)
        here.train([job(PLAIN, client=3)])
        assert torch.equal(result.vector, kept)
        result.vector.zero_()
        assert torch.equal(task.start, before)
        assert model.vector.count_nonzero() > 0


class TestPrefix:
    @pytest.mark.parametrize("name", ["plain", "momentum", "clipped", "proximal", "whole data", "adamw"])
    @pytest.mark.parametrize("dropout", [0.0, 0.5])
    def test_a_visit_cut_short_ends_where_the_whole_one_passes(self, name, dropout, trainer, job, network):
        plan = PLANS[name]
        model = FlatModel(network(dropout))
        passed: list[Tensor] = []
        model.module.register_forward_pre_hook(lambda *_: passed.append(model.vector.clone()))
        whole = trainer(model=model).train([job(plan)])[0].vector
        passed.append(whole)
        assert len(passed) == plan.steps + 1
        for steps in range(1, plan.steps):
            changes = {
                key: getattr(plan, key) for key in ("batch_size", "lr", "momentum", "mu", "clip_norm", "optimizer")
            }
            short = trainer(dropout=dropout).train([job(LocalPlan(steps=steps, **changes))])[0].vector
            assert torch.equal(short, passed[steps])
            assert not torch.equal(short, whole)


class TestIndependence:
    @pytest.mark.parametrize("dropout", [0.0, 0.5])
    def test_a_result_depends_on_its_own_job_alone(self, dropout, trainer, job):
        jobs = [
            job(PLANS["momentum"], client=0),
            job(PLANS["proximal"], client=1, visit=2, payload="delta"),
            job(PLANS["clipped"], client=2, start=torch.full((59,), 0.1)),
            job(PLANS["plain"], client=0, visit=1),
            job(PLANS["adamw"], client=3),
        ]
        alone = [trainer(dropout=dropout).train([task])[0] for task in jobs]
        here = trainer(dropout=dropout)
        for order in ([0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 4, 0, 4, 2, 1, 3]):
            assert_same(here.train([jobs[number] for number in order]), [alone[number] for number in order])

    def test_a_visit_that_diverged_does_not_change_the_next(self, trainer, job):
        bad, good = trainer().train([job(PLAIN, start=torch.full((59,), torch.nan)), job(PLANS["momentum"])])
        assert bad.vector.isnan().any()
        assert torch.equal(good.vector, trainer().train([job(PLANS["momentum"])])[0].vector)


LITTLE = {
    "loss": cross_entropy,
    "inputs": torch.arange(24.0).reshape(8, 3) / 24,
    "labels": torch.arange(8) % 2,
    "shards": [np.arange(4), np.arange(4, 8)],
    "seed": 1,
}


def test_changes_in_place_are_lost():
    class InPlace(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            # Multiplying by a parameter ties a view of all inputs to the graph of one step.
            inputs.mul_(self.weight[0]).sub_(0.5)
            return super().forward(inputs)

    def loss(outputs: Tensor, labels: Tensor) -> Tensor:
        value = cross_entropy(outputs, labels.clone())
        labels.zero_()
        return value

    model = made(lambda: FlatModel(InPlace(3, 2)))
    inputs, labels = LITTLE["inputs"].clone(), LITTLE["labels"].clone()
    data = LITTLE | {"loss": loss, "inputs": inputs, "labels": labels, "shards": [np.arange(8)]}
    trainer = LoopBackend(workload_of(model, **data))
    task = Job(0, 0, 0, model.vector.clone(), LocalPlan(steps=5, batch_size=4, lr=0.1), "delta")
    first = trainer.train([task])[0]
    assert first.vector.count_nonzero() == 8
    assert torch.equal(trainer.train([task])[0].vector, first.vector)
    assert torch.equal(inputs, LITTLE["inputs"])
    assert torch.equal(labels, LITTLE["labels"])


class TestFailures:
    def test_a_failure_names_client_visit_and_place(self, trainer, job):
        calls: list[int] = []

        def loss(outputs: Tensor, labels: Tensor) -> Tensor:
            calls.append(1)
            if len(calls) == 3:
                raise KeyError("first\nsecond")
            return cross_entropy(outputs, labels)

        with pytest.raises(OffbeatError) as caught:
            trainer(loss=loss).train([job(PLAIN, client=3, visit=2)])
        line = loss.__code__.co_firstlineno + 3
        assert str(caught.value) == (
            "client 3, visit 2: the model or the loss failed: "
            rf"KeyError: 'first\nsecond' ({Path(__file__)}:{line})"
        )

    def test_a_failure_of_the_model_or_the_backward_pass(self, trainer, job, network):
        def refuse(*_: object) -> None:
            raise ValueError("one\ntwo")

        module = network()
        module.register_forward_pre_hook(refuse)
        with pytest.raises(OffbeatError, match=r"^client 1, visit 0: the model or the loss failed: ValueError: one \("):
            trainer(module).train([job(PLAIN)])
        with pytest.raises(OffbeatError, match=r"^client 1, visit 0: the model or the loss failed: RuntimeError: "):
            trainer(loss=lambda outputs, _: outputs.detach().mean()).train([job(PLAIN)])
        with pytest.raises(OffbeatError, match=r"^the loss must be the mean .* but it is a float$"):
            trainer(loss=lambda *_: 1.0).train([job(PLAIN)])
