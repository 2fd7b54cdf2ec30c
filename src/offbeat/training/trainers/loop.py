"""The reference backend: one client after the other, for any model."""

from collections.abc import Sequence

import numpy as np
import torch
from offbeat_core.randomness import Purpose, integer
from offbeat_core.user_code_errors import user_code
from torch import Tensor

from offbeat.model_inputs import Inputs
from offbeat.training.augmentation import AUGMENTATIONS
from offbeat.training.max_pooling import deterministic_pooling, fast_max_pooling
from offbeat.training.mean_loss import mean_of_steps
from offbeat.training.trainers.backend import Backend, Job, Result, result_vector, results_of
from offbeat.training.trainers.local_step import AdamW, local_step
from offbeat.training.workload import Workload
from offbeat.uniform_numbers import example_order


class LoopBackend(Backend):
    """Local training of one client at a time.

    A step's gradient is ``∇loss + offset + mu (w − w_start)``, clipped to ``clip_norm``, followed by weight decay and
    momentum as in ``torch.optim.SGD``, or by a step of ``torch.optim.AdamW``. Minibatches pass through the client's
    examples repeatedly, in random order; see ``LocalPlan.by_epochs``. The model is trained in place.

    Attributes:
        steps: Of the latest visit, each step's loss and what its mean divides by, ``()``; None for the latter where
            all steps count the same.
    """

    name = "loop"
    batch_limit = 1

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.steps: list[tuple[Tensor, Tensor | None]] = []
        self._model = workload.model
        self._objective = workload.objective
        self._pooling = fast_max_pooling(workload.model.module)
        self._minibatch_sizes: Sequence[int] = ()
        self._shards = [torch.from_numpy(shard) for shard in workload.shards]
        self._augment = None if workload.augmentation is None else AUGMENTATIONS[workload.augmentation]

    def train(self, jobs: Sequence[Job]) -> list[Result]:
        """Train each job from its start, in order.

        Raises ``OffbeatError`` if the model or the loss fails, or the loss is not a tensor of shape ``()``.
        """
        self._model.module.train()
        with self.workload.accelerator.forked_randomness():
            trained = [self._train(job) for job in jobs]
        return results_of([vector for vector, _ in trained], [loss for _, loss in trained])

    def _train(self, job: Job) -> tuple[Tensor, Tensor]:
        """Return the result's vector and its mean loss, a tensor of shape ``()``."""
        plan, shard = job.plan, self._shards[job.client]
        batch_size = min(plan.batch_size, len(shard))
        seed, accelerator = self.workload.seed, self.workload.accelerator
        self._minibatch_sizes = sizes = plan.minibatch_sizes(len(shard))
        minibatches = shard[example_order(seed, job.client, job.visit, len(shard), sum(sizes))].split(sizes)
        client, visit = np.array([job.client]), np.array([job.visit])
        # Dropout and similar layers draw from torch's own generator.
        accelerator.seed(integer(seed, Purpose.LAYERS, job.client, job.visit))

        self._model.load(job.start)
        self._objective = self.workload.objective.fresh()
        self.steps = []
        velocity = torch.zeros_like(job.start) if plan.momentum else None
        adamw = AdamW(job.start) if plan.optimizer == "adamw" else None
        what = f"client {job.client}, visit {job.visit}: the model or the loss failed"
        if batch_size == 1:  # a layer that normalises by the minibatch needs more
            what += " on its only example" if len(shard) == 1 else " on one example, since local.batch_size is 1"
        for step, chosen in enumerate(minibatches):
            with user_code(what):
                # Copies, so changes in place by model and loss are lost.
                inputs, labels = self.workload.minibatch(chosen)
                if self._augment:
                    assert isinstance(inputs, Tensor)
                    inputs = self._augment(inputs[None], seed, client, visit, step * batch_size)[0]
                self.steps.append(self._differentiate(inputs, labels))
            local_step(self._model.vector, self._model.gradient, velocity, job.start, plan, step, job.offset, adamw)
        return result_vector(job.payload, job.start, self._model.vector), self.mean_loss()

    def mean_loss(self) -> Tensor:
        """Return the mean loss of the latest visit's steps, ``()``."""
        losses, counts = zip(*self.steps, strict=True)
        return mean_of_steps(losses, counts, self._minibatch_sizes[: len(losses)])

    def _differentiate(self, inputs: Inputs[Tensor], labels: Tensor) -> tuple[Tensor, Tensor | None]:
        """Compute the model's gradient on a minibatch; return an entry of ``steps``."""
        self._model.gradient.zero_()
        with self.workload.accelerator.autocast():
            forward = [self._pooling, deterministic_pooling(self.workload.accelerator)]
            _, loss, calls = self._objective.measure(
                self._model.module, inputs, labels, forward, notes_calls=self.workload.may_weigh is True
            )
        # Outside: parts that the model computes in float32 have gradients in float32.
        loss.backward()
        self._model.adopt()
        return loss.detach(), calls.divisor()
