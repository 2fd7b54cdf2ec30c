"""The reference trainer: one client after the other, for any model."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from offbeat.algorithms.components import LocalPlan
from offbeat.randomness import Purpose, example_order, integer
from offbeat.training.augmentation import AUGMENTATIONS
from offbeat.training.evaluation import check_scalar
from offbeat.training.max_pooling import fast_max_pooling
from offbeat.training.trainers.trainer import Job, Result, Trainer, result_vector
from offbeat.training.workload import Workload
from offbeat_client.user_code_errors import user_code


class LoopTrainer(Trainer):
    """Local SGD for one client at a time.

    A step's gradient is ``∇loss + offset + mu (w − w_start)``, clipped to ``clip_norm``, followed by weight decay and
    momentum as in ``torch.optim.SGD``. Minibatches pass through the client's examples repeatedly, in random order. The
    model is trained in place.
    """

    name = "loop"
    batch_limit = 1

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self._model = workload.model
        self._pooling = fast_max_pooling(workload.model.module)
        self._shards = [torch.from_numpy(shard) for shard in workload.shards]
        self._augment = None if workload.augmentation is None else AUGMENTATIONS[workload.augmentation]

    def collect(self, jobs: Sequence[Job]) -> list[Result]:
        """Train each job from its start, in order.

        Raises ``OffbeatError`` if the model or the loss fails, or the loss is not a tensor of shape ``()``.
        """
        self._model.module.train()
        with torch.random.fork_rng(devices=[]):
            return [self._train(job) for job in jobs]

    def _train(self, job: Job) -> Result:
        plan, shard = job.plan, self._shards[job.client]
        batch_size = min(plan.batch_size, len(shard))
        seed = self.workload.seed
        order = example_order(seed, job.client, job.visit, len(shard), plan.steps * batch_size)
        minibatches = shard[order].split(batch_size)
        client, visit = np.array([job.client]), np.array([job.visit])
        # Dropout and similar layers draw from torch's own generator.
        torch.default_generator.manual_seed(integer(seed, Purpose.LAYERS, job.client, job.visit))

        self._model.load(job.start)
        velocity = torch.zeros_like(job.start) if plan.momentum else None
        losses = torch.empty(plan.steps)
        what = f"client {job.client}, visit {job.visit}: the model or the loss failed"
        for step, chosen in enumerate(minibatches):
            self._model.gradient.zero_()
            with user_code(what):
                # Copies, so changes in place by model and loss are lost.
                inputs, labels = self.workload.train.take(chosen)
                if self._augment:
                    inputs = self._augment(inputs[None], seed, client, visit, step)[0]
                with self._pooling:
                    outputs = self._model.module(inputs)
                loss = check_scalar(self.workload.objective.loss(outputs, labels))
                loss.backward()
            losses[step] = loss.detach()
            sgd_step(self._model.vector, self._model.gradient, velocity, job.start, plan, step, job.offset)
        return Result(result_vector(job.payload, job.start, self._model.vector), losses.mean().item())


def sgd_step(
    weights: Tensor,
    gradient: Tensor,
    velocity: Tensor | None,
    start: Tensor,
    plan: LocalPlan,
    step: int,
    offset: Tensor | None = None,
) -> None:
    """Take a step of local SGD in place; all tensors are ``(d,)``.

    The first step has index 0. Weights and velocity, which is zero before the first step and None without momentum, are
    changed; the gradient is overwritten. The offset is added to it.
    """
    if offset is not None:
        gradient.add_(offset)
    if plan.mu:
        gradient.add_(weights - start, alpha=plan.mu)
    if plan.clip_norm is not None:
        norm = torch.linalg.vector_norm(gradient).item()
        if norm > plan.clip_norm and math.isfinite(norm):
            gradient.mul_(plan.clip_norm / norm)
    if plan.weight_decay:
        gradient.add_(weights, alpha=plan.weight_decay)
    if velocity is not None:
        gradient = velocity.mul_(plan.momentum).add_(gradient)
    weights.sub_(gradient, alpha=plan.lr[step] if isinstance(plan.lr, tuple) else plan.lr)
