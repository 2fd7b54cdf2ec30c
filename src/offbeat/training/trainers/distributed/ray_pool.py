"""The backend of a Ray cluster."""

import logging
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import torch
from offbeat_core.errors import OffbeatError
from offbeat_core.user_code_errors import error_line
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from offbeat.training.trainers.backend import Result
from offbeat.training.trainers.distributed.packed_workload import pack_workload
from offbeat.training.trainers.distributed.ray_actor import RayJob, TrainingActor, versions
from offbeat.training.trainers.distributed.ray_cluster import (
    DEFAULT_CLUSTER,
    RayCluster,
    check_ray,
    connect,
    import_ray,
)
from offbeat.training.trainers.distributed.worker_pool import Task, WorkerPool
from offbeat.training.workload import Workload

_log = logging.getLogger(__name__)

_BATCHES_PER_ACTOR = 2  # one in training, and one so that the actor does not wait for the next
_MAX_BATCH = 4
_MAX_FAILED_STARTS = 3
_PATIENCE_SECONDS = 30.0  # for the first actor

_EMPTY = torch.empty(0)


@dataclass(eq=False, slots=True)
class _Batch:
    reply: Any  # a reference to the actor's replies
    tasks: list[Task]


@dataclass(eq=False, slots=True)
class _Actor:
    """An actor with its batches in the order of its replies.

    The first batch has no tasks, but asks for the actor's versions.
    """

    handle: Any
    batches: deque[_Batch] = field(default_factory=deque)
    is_ready: bool = False


class RayPool(WorkerPool):
    """Local SGD for several clients at once, by actors of a Ray cluster.

    Each actor has one processor and one thread, and a GPU if the workload is on one. Actors start with the first jobs,
    also after ``close``. The workload and each starting model are put into the cluster's memory once. An actor has at
    most two batches of jobs, of one job each as long as few jobs wait. An actor that dies is replaced, and its jobs are
    trained again.

    Args:
        workload: What is trained; the model's values are not used.
        workers: How many processors of this machine a cluster gets that has to be started.
        cluster: The cluster and the share of its processors.

    Raises:
        OffbeatError: Ray is not installed, or the model or the loss cannot be sent.
    """

    def __init__(self, workload: Workload, *, workers: int, cluster: RayCluster = DEFAULT_CLUSTER) -> None:
        check_ray()
        super().__init__(workload, places=_BATCHES_PER_ACTOR * _MAX_BATCH * workers)
        self._packed = pack_workload(workload, "ray")
        self._workers = workers
        self._cluster = cluster
        self._most = 0  # actors; 0 without a connection
        self._actors: list[_Actor] = []
        self._failed_starts = 0
        self._workload_refs: list[Any] = []
        self._vectors = WeakTensorKeyDictionary()  # references, as long as a vector is in use here

    def close(self) -> None:
        """End the actors and withdraw all jobs."""
        for actor in self._actors:
            _kill(actor)
        self._actors.clear()  # Ray also ends an actor without a handle, so the backend needs no finalizer
        self._vectors.clear()
        self._workload_refs, self._most = [], 0
        super().close()

    def _advance(self, timeout: float | None) -> None:
        if self._actors:
            self._handle_replies(timeout)
        if not self._next_queue():
            return
        self._start_actors()
        while queue := self._next_queue():
            actor = self._find_actor()
            if actor is None:
                return
            # Several, if many wait.
            share = len(queue) // (2 * _BATCHES_PER_ACTOR * self._most)
            self._send(actor, self._take_batch(max(1, min(_MAX_BATCH, share))))

    def _start_actors(self) -> None:
        """Start as many actors as there are jobs to begin with, up to the cluster's share."""
        if not self._most:
            self._most = connect(self._cluster, self._workers, on_gpus=self.workload.accelerator.is_cuda)
            # As arrays, which Ray keeps in memory that processes share.
            arrays = {name: tensor.numpy() for name, tensor in self._packed.tensors.items()}
            self._workload_refs = [import_ray().put(part) for part in (self._packed._replace(tensors={}), arrays)]
        starting = sum(not actor.is_ready for actor in self._actors)
        waiting = len(self._requested) + len(self._submitted)
        for _ in range(min(self._most - len(self._actors), waiting - starting)):
            ray = import_ray()
            gpus = 1 if self.workload.accelerator.is_cuda else 0
            actor_class = ray.remote(num_cpus=1, num_gpus=gpus, max_restarts=0, max_task_retries=0)(TrainingActor)
            actor = _Actor(actor_class.remote(*self._workload_refs))
            actor.batches.append(_Batch(actor.handle.versions.remote(), []))
            self._actors.append(actor)

    def _find_actor(self) -> _Actor | None:
        """Return the ready actor with the fewest batches; None if all have enough."""
        ready = [actor for actor in self._actors if actor.is_ready]
        least = min(ready, key=lambda actor: len(actor.batches), default=None)
        return least if least is not None and len(least.batches) < _BATCHES_PER_ACTOR else None

    def _send(self, actor: _Actor, tasks: list[Task]) -> None:
        references: list[Any] = []

        def index(vector: Tensor) -> int:
            reference = self._vectors.get(vector)
            if reference is None:
                reference = self._vectors[vector] = import_ray().put(vector.cpu().numpy())
            if reference not in references:
                references.append(reference)
            return references.index(reference)

        messages = [
            RayJob(
                task.job._replace(start=_EMPTY, offset=None),
                index(task.job.start),
                None if task.job.offset is None else index(task.job.offset),
            )
            for task in tasks
        ]
        actor.batches.append(_Batch(actor.handle.train.remote(messages, *references), tasks))

    def _handle_replies(self, timeout: float | None) -> None:
        ray = import_ray()
        waiting = {actor.batches[0].reply: actor for actor in self._actors if actor.batches}
        if timeout is None and not any(actor.is_ready for actor in self._actors):
            timeout = _PATIENCE_SECONDS
        ready, _ = ray.wait(list(waiting), num_returns=1, timeout=timeout)
        if not ready and timeout:
            _log.warning("no actor has started yet: are all processors of the cluster in use?")
            ready, _ = ray.wait(list(waiting), num_returns=1)
        if ready:
            ready, _ = ray.wait(list(waiting), num_returns=len(waiting), timeout=0)
        for reference in ready:
            actor = waiting[reference]
            try:
                replies = ray.get(reference)
            except ray.exceptions.RayError as error:
                self._handle_death(actor, error)
                continue
            tasks = actor.batches.popleft().tasks
            if not tasks:
                _check_versions(replies)
                actor.is_ready, self._failed_starts = True, 0
            for task, reply in zip(tasks, replies, strict=False):
                if isinstance(reply, tuple):
                    # Copied, since Ray's array is read-only and would keep the whole batch in memory.
                    vector = torch.from_numpy(reply[0].copy()).to(self.workload.accelerator.device)
                    task.outcome = Result(vector, reply[1])
                else:
                    is_mistake = isinstance(reply, OffbeatError)
                    task.outcome = reply if is_mistake else RuntimeError(f"an actor failed:\n{reply}")

    def _handle_death(self, actor: _Actor, error: Exception) -> None:
        """Put the tasks of a dead actor back into the queues."""
        self._actors.remove(actor)
        _kill(actor)
        if not actor.is_ready:
            self._failed_starts += 1
            # An error of Python's comes again, while a machine that was lost does not.
            if "creation task" in str(error) or self._failed_starts == _MAX_FAILED_STARTS:
                self._failed_starts = 0
                last = str(error).strip().splitlines()[-1]
                raise OffbeatError(
                    f"trainer = 'ray': actors cannot be started ({last}): install the same versions of Python, torch "
                    "and offbeat on all machines of the cluster"
                )
        self._put_back([batch.tasks for batch in actor.batches], "actors", error_line(error))


def _check_versions(there: dict[str, str]) -> None:
    here = versions()
    for name in here:
        if there.get(name) != here[name]:
            raise OffbeatError(
                f"trainer = 'ray': the cluster has {name} {there.get(name)} and this machine {here[name]}: install the "
                "same versions on all machines"
            )


def _kill(actor: _Actor) -> None:
    ray = import_ray()
    if ray.is_initialized():
        ray.kill(actor.handle)
