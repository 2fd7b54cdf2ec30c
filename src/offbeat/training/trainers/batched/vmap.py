"""The batched backend: one computation for many clients, each with its own model."""

import math
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from offbeat_core.errors import OffbeatError
from offbeat_core.randomness import Purpose, integer
from offbeat_core.user_code_errors import user_code
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap  # pyright: ignore[reportPrivateImportUsage]

from offbeat.model_inputs import Inputs, map_inputs
from offbeat.training.augmentation import AUGMENTATIONS
from offbeat.training.max_pooling import deterministic_pooling
from offbeat.training.mean_loss import mean_loss
from offbeat.training.minibatches import Integers
from offbeat.training.trainers.backend import Backend, Job, Result, read_numbers, result_vector
from offbeat.training.trainers.batched import job_groups
from offbeat.training.trainers.batched.dense import dense_step, is_dense
from offbeat.training.trainers.batched.dropout import Draw, Dropout
from offbeat.training.trainers.batched.job_groups import Group, group_of
from offbeat.training.trainers.batched.unfolded_convolution import unfolded_convolutions
from offbeat.training.trainers.local_step import AdamW, along, stacked_step
from offbeat.training.workload import Workload

_UNKNOWN = -1  # in place of what a mean divides by
_SMALLEST_BATCH = 2  # a CPU may compute a single model in another way, with other last bits


class VmapBackend(Backend):
    """Local training of a batch of clients, step by step, with ``torch.func.vmap``.

    Results equal those of ``LoopBackend`` up to rounding, and are bit-equal for any division of the jobs into batches.
    Jobs with different numbers of steps or step sizes are trained together; jobs with different minibatch sizes,
    optimisers, momentum, proximal terms, weight decay or clipping in separate groups. Smaller minibatches at the ends
    of epochs are computed apart, on a GPU one by one. The model's values are not used.

    Args:
        workload: What is trained.
        batch_limit: The largest number of models to train together.
        padded: Whether each batch is filled up to that number. GPUs choose the order of additions by the shapes, so
            without it a result's last bits depend on the other jobs of its batch.
        unfold_convolutions: Whether convolutions are matrix products, which GPUs batch well. This changes the last
            bits, and the backend's name says so.
    """

    name = "vmap"

    def __init__(
        self,
        workload: Workload,
        *,
        batch_limit: int = 64,
        padded: bool = False,
        unfold_convolutions: bool = False,
    ) -> None:
        if unfold_convolutions:
            self.name = "unfold"
        self.workload = workload
        self.batch_limit = batch_limit
        self._padded = padded
        self._model = workload.model
        self._augment = None if workload.augmentation is None else AUGMENTATIONS[workload.augmentation]
        module = workload.model.module
        self._objective = workload.objective
        convolutions = unfolded_convolutions() if unfold_convolutions else nullcontext()

        def loss_of(
            parameters: dict[str, Tensor], inputs: Inputs[Tensor], labels: Tensor, dropout: Dropout | None
        ) -> tuple[Tensor, Tensor]:
            def call(*args: Any, **kwargs: Any) -> Any:
                return functional_call(module, parameters, args, kwargs)

            mode = dropout.step(labels) if dropout else nullcontext()
            with workload.accelerator.autocast(), convolutions, deterministic_pooling(workload.accelerator), mode:
                _, loss, calls = self._objective.measure(call, inputs, labels, notes_calls=workload.may_weigh is True)
                count = calls.divisor()
                return loss, torch.full((), _UNKNOWN, device=loss.device) if count is None else count

        self._is_dense = is_dense(workload) and workload.accelerator.precision != "bf16"
        self._gradients = vmap(grad_and_value(loss_of, has_aux=True), in_dims=(0, 0, 0, None))
        self._draws: dict[int, list[Draw]] = {}  # of the first step, by minibatch size

    @property
    def kernel(self) -> str:
        """``dense``, which needs no derivatives by ``torch.func``, or the backend's name."""
        return "dense" if self._is_dense else self.name

    def train(self, jobs: Sequence[Job]) -> list[Result]:
        """Train all jobs, each from its start.

        Raises ``OffbeatError`` if the model or the loss fails, or the loss is not a tensor of shape ``()``.
        """
        self._model.module.train()
        groups: dict[Group, list[int]] = {}
        for index, job in enumerate(jobs):
            groups.setdefault(group_of(job, self.workload.examples(job.client)), []).append(index)
        results: dict[int, Result] = {}
        for group, indices in groups.items():
            # Jobs with the most steps come first, so that finished jobs are at the end.
            indices.sort(key=lambda index: -jobs[index].plan.steps)
            for first in range(0, len(indices), self.batch_limit):
                batch = indices[first : first + self.batch_limit]
                results.update(zip(batch, self._train([jobs[index] for index in batch], group), strict=True))
        return [results[index] for index in range(len(jobs))]

    @property
    def _smallest(self) -> int:
        """The smallest number of models to train together."""
        return self.batch_limit if self._padded else _SMALLEST_BATCH

    def _train(self, jobs: Sequence[Job], group: Group) -> Iterable[Result]:
        number = len(jobs)
        jobs = [*jobs, *[jobs[-1]] * (self._smallest - number)]  # the last job is repeated
        steps, clients, visits = np.array([(job.plan.steps, job.client, job.visit) for job in jobs]).T
        sizes = job_groups.minibatch_sizes(self.workload, jobs, group.batch_size)
        examples = job_groups.minibatches(self.workload, clients, visits, sizes, group.batch_size)
        starts = torch.stack([job.start for job in jobs])
        models = {name: part.clone() for name, part in self._model.stacked(starts).items()}
        first = self._model.stacked(starts)
        offsets = [job.offset for job in jobs if job.offset is not None]  # of all jobs of a group, or of none
        offset = self._model.stacked(torch.stack(offsets)) if offsets else {}
        velocity = {name: torch.zeros_like(part) for name, part in models.items()} if group.momentum else None
        adamw = {name: AdamW(part) for name, part in models.items()} if group.optimizer == "adamw" else None
        rates = job_groups.step_sizes(jobs).to(starts.device)
        losses = torch.zeros(len(jobs), int(steps[0]), device=starts.device)
        counts = torch.full_like(losses, _UNKNOWN)
        self._objective = self.workload.objective.fresh()
        dropout = self._dropout(jobs, group.batch_size)
        actives = np.count_nonzero(steps[:, None] > np.arange(steps[0]), axis=0).tolist()
        fetched = job_groups.fetch(self.workload, examples, actives, self._smallest)
        for step, (active, (inputs, labels)) in enumerate(zip(actives, fetched, strict=True)):
            taken, rate = len(labels), rates[: len(labels), step]
            part = {name: values[:taken] for name, values in models.items()}
            done = {name: values[active:].clone() for name, values in part.items()} if active < taken else {}
            if self._augment:
                assert isinstance(inputs, Tensor)
                first_image = step * group.batch_size
                inputs = self._augment(inputs, self.workload.seed, clients[:taken], visits[:taken], first_image)
            if self._is_dense and group.is_dense and isinstance(inputs, Tensor):
                starting = [values[:taken] for values in first.values()] if group.mu else ()
                parts = (
                    job_groups.shares(sizes[:taken, step], group.batch_size).to(rate.device)
                    if group.by_epochs
                    else None
                )
                losses[:taken, step] = dense_step(
                    list(part.values()), inputs, labels, rate, starting, group.mu, shares=parts
                )
                for name, values in offset.items():
                    part[name].addcmul_(values[:taken], along(rate, values), value=-1)
            else:
                with user_code(f"{job_groups.names(jobs[: min(active, number)])}: the model or the loss failed"):
                    slopes, (losses[:taken, step], counts[:taken, step]) = self._slopes(
                        part, inputs, labels, sizes[:taken, step], dropout
                    )
                for name, values in offset.items():
                    slopes[name].add_(values[:taken])
                stacked_step(part, slopes, first, velocity, adamw, rate, jobs[0].plan)
            for name, values in done.items():
                part[name][active:] = values
        ends = torch.cat([part.reshape(len(jobs), -1) for part in models.values()], dim=1)
        vectors = [result_vector(job.payload, starts[row], ends[row]) for row, job in enumerate(jobs[:number])]
        squares = torch.stack([vector.dot(vector) for vector in vectors])
        numbers = read_numbers(torch.cat([losses[:number], counts[:number], squares[:, None]], dim=1))
        for row, (job, vector, (*of_steps, square)) in enumerate(zip(jobs[:number], vectors, numbers, strict=True)):
            first, end = len(of_steps) // 2, job.plan.steps
            of_job = of_steps[:end], of_steps[first : first + end], sizes[row, :end].tolist()
            yield Result(vector, _mean_of_steps(*of_job), square)

    def _slopes(
        self,
        models: dict[str, Tensor],
        inputs: Inputs[Tensor],
        labels: Tensor,
        sizes: Integers,
        dropout: Dropout | None,
    ) -> "_Slopes":
        """Return each model's gradient, its loss and the divisor of the loss.

        They are those of the first examples of its minibatch.

        Inputs and labels are ``(models, batch size, …)``, sizes ``(models,)``; 0 is for a model that has finished.
        """
        is_small = (sizes > 0) & (sizes < labels.shape[1])
        rows = [None if small else row for row, small in enumerate(is_small.tolist())]
        slopes, numbers = self._differentiate(models, inputs, labels, dropout, rows)
        if not is_small.any():
            return slopes, numbers
        # Where they do not depend on the model, they are one row for all.
        slopes = {name: values.contiguous() for name, values in slopes.items()}
        numbers = numbers[0].contiguous(), numbers[1].contiguous()
        for size in np.unique(sizes[is_small]):
            same = np.flatnonzero(sizes == size)
            for chosen in same[:, None] if self._padded else same[None]:
                filled = torch.from_numpy(np.pad(chosen, (0, max(0, _SMALLEST_BATCH - len(chosen))), "edge"))
                part = {name: values[filled] for name, values in models.items()}
                shorter = map_inputs(lambda values, filled=filled, size=size: values[filled, :size], inputs)
                found, others = self._differentiate(part, shorter, labels[filled, :size], dropout, chosen.tolist())
                for name, values in found.items():
                    slopes[name][chosen] = values[: len(chosen)]
                for number, values in zip(numbers, others, strict=True):
                    number[chosen] = values[: len(chosen)]
        return slopes, numbers

    def _differentiate(
        self,
        models: dict[str, Tensor],
        inputs: Inputs[Tensor],
        labels: Tensor,
        dropout: Dropout | None,
        rows: Sequence[int | None],
    ) -> "_Slopes":
        """Return ``_slopes`` on whole minibatches; ``rows`` are those of ``Dropout``."""
        if dropout is None:
            return self._gradients(models, inputs, labels, None)
        dropout.rows = rows
        found = self._gradients(models, inputs, labels, dropout)
        if self._draws.setdefault(labels.shape[1], dropout.draws) != dropout.draws:
            raise OffbeatError("the model's dropout differs from step to step: use trainer = 'loop'")
        return found

    def _dropout(self, jobs: Sequence[Job], batch_size: int) -> Dropout | None:
        """Return the jobs' dropout; None if the model is known to have none."""
        if self._is_dense or self._draws.get(batch_size) == []:
            return None
        return Dropout([integer(self.workload.seed, Purpose.LAYERS, job.client, job.visit) for job in jobs])


_Slopes = tuple[dict[str, Tensor], tuple[Tensor, Tensor]]
"""Gradients by name, losses ``(models,)``, and what these divide by."""


def _mean_of_steps(losses: Sequence[float], counts: Sequence[float], sizes: Sequence[int]) -> float:
    """Return the mean loss of a visit's steps; 0 if they have no target."""
    if len(set(counts)) == len(set(sizes)) == 1 and counts[0]:
        return math.fsum(losses) / len(losses)
    known = [None if count == _UNKNOWN else count for count in counts]
    return mean_loss(losses, known, sizes) or 0.0
