"""Jobs that are trained together: common settings, minibatches, step sizes."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from offbeat_core.local_plan import Optimizer
from torch import Tensor

from offbeat.model_inputs import Inputs, divide_inputs
from offbeat.training.minibatches import Integers, example_orders
from offbeat.training.trainers.backend import Job
from offbeat.training.workload import Workload

_FETCHED = 256  # examples fetched together, if a step has no more: they stay in the cache until they are used


class Group(NamedTuple):
    """The common properties of jobs that are trained together."""

    batch_size: int
    optimizer: Optimizer
    momentum: float
    weight_decay: float
    mu: float
    clip_norm: float | None
    by_epochs: bool
    has_offset: bool

    @property
    def is_dense(self) -> bool:
        """True if ``dense_step`` supports these jobs."""
        plain = not (self.momentum or self.weight_decay) and self.clip_norm is None
        return plain and self.optimizer == "sgd"


def group_of(job: Job, examples: int) -> Group:
    """Return the group of a job whose client has so many examples."""
    plan, batch_size = job.plan, min(job.plan.batch_size, examples)
    steps = plan.optimizer, plan.momentum, plan.weight_decay, plan.mu, plan.clip_norm
    return Group(batch_size, *steps, plan.by_epochs, has_offset=job.offset is not None)


def minibatch_sizes(workload: Workload, jobs: Sequence[Job], batch_size: int) -> Integers:
    """Return the size of each row's minibatches, ``(rows, steps of the first)``.

    It is 0 after a row's last step.
    """
    sizes = np.zeros((len(jobs), jobs[0].plan.steps), np.int64)
    for row, job in enumerate(jobs):
        plan, examples = job.plan, workload.examples(job.client)
        sizes[row, : plan.steps] = plan.minibatch_sizes(examples) if plan.by_epochs else batch_size
    return sizes


def minibatches(workload: Workload, clients: Integers, visits: Integers, sizes: Integers, batch_size: int) -> Tensor:
    """Return each row's example numbers, int64 ``(rows, most steps, batch size)``.

    Minibatches are filled up with one of the client's examples.
    """
    held = np.array([workload.examples(client) for client in clients])
    orders = example_orders(workload.seed, clients, visits, held, sizes.sum(axis=1))
    examples = np.zeros((*sizes.shape, batch_size), np.int64)
    for row, (client, order) in enumerate(zip(clients, orders, strict=True)):
        own, filled = workload.shards[client][order], examples[row, : np.count_nonzero(sizes[row])]
        if len(own) == filled.size:
            filled[:] = own.reshape(filled.shape)
        else:
            filled[:] = own[0]
            filled[np.arange(batch_size) < sizes[row, : len(filled), None]] = own
    return torch.from_numpy(examples).to(workload.train.labels.device)


def fetch(
    workload: Workload, examples: Tensor, actives: Sequence[int], smallest: int
) -> Iterator[tuple[Inputs[Tensor], Tensor]]:
    """Yield each step's minibatches of its active rows, ``(models, batch size, …)``.

    If fewer than ``smallest`` rows are active, finished rows are added. Several steps are fetched at a time, which is
    faster. The ``examples`` are those of ``minibatches``, the ``actives`` do not increase.
    """
    step = 0
    while step < len(actives):
        taken = max(actives[step], smallest)
        most = step + max(1, _FETCHED // (taken * examples.shape[2]))
        end = step + 1
        while end < min(most, len(actives)) and max(actives[end], smallest) == taken:
            end += 1
        chosen = examples[:taken, step:end].transpose(0, 1)
        inputs, labels = workload.minibatch(chosen)
        yield from zip(divide_inputs(Tensor.unbind, inputs), labels, strict=True)
        step = end


def shares(sizes: Integers, batch_size: int) -> Tensor:
    """Return each example's share of its minibatch's mean, ``(rows, batch size)``."""
    numbers = np.where(sizes, sizes, batch_size)[:, None]
    return torch.from_numpy(((np.arange(batch_size) < numbers) / numbers).astype(np.float32))


def step_sizes(jobs: Sequence[Job]) -> Tensor:
    """Return each row's step size in each step, ``(rows, steps of the first)``.

    It is 0 after a row's last step.
    """
    rates = np.zeros((len(jobs), jobs[0].plan.steps), np.float32)
    for row, job in enumerate(jobs):
        rates[row, : job.plan.steps] = job.plan.lr
    return torch.from_numpy(rates)


def names(jobs: Sequence[Job]) -> str:
    """Return the first client and visit, and the number of others, for a message."""
    first, others = f"client {jobs[0].client}, visit {jobs[0].visit}", len(jobs) - 1
    return f"{first}, or one of {others} trained with it" if others else first
