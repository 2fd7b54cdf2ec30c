"""Training on demand: jobs are trained in batches when a result is needed."""

import math
from collections import OrderedDict
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError
from offbeat_core.randomness import Purpose, integer
from offbeat_core.sent_update import control_variate, has_memory, is_plain, send
from torch import Tensor

from offbeat.algorithms.components.client_update import check_shape, check_vector
from offbeat.algorithms.components.component import under
from offbeat.training.trainers.backend import Job, Result
from offbeat.training.trainers.trainer import Trainer


class DivergedError(OffbeatError):
    """Training went to NaN or infinity."""


class Memory:
    """The promise of the vector and the state that a client keeps from a visit."""

    __slots__ = ("state", "upload", "vector")

    def __init__(
        self, upload: "PromisedUpload | None", vector: Tensor | None = None, state: bytes | None = None
    ) -> None:
        self.upload = upload  # None once it is trained
        self.vector = vector  # float32 (d,), once that is trained; None for none
        self.state = state  # of a trainer that keeps states, once that is trained

    def resolve(self) -> Tensor | None:
        """Return the vector; trains, and raises, like ``PromisedUpload.resolve``."""
        if self.upload is not None:
            self.upload.resolve()
        return self.vector


class PromisedUpload:
    """The promise of a visit's upload."""

    __slots__ = ("_queue", "before", "error", "examples", "job", "loss", "memory", "vector")

    def __init__(self, job: Job | None, queue: "TrainingQueue") -> None:
        self.job = job  # None once it is done or cancelled, since it holds the starting model
        self.vector: Tensor | None = None  # float32 (d,), as the server gets it, once it is trained
        self.before: Memory | None = None  # of the client's last counted visit, until this one is trained
        self.memory: Memory | None = None  # the client's from this visit on, if it counts and needs one
        self.loss: float | None = None  # mean over the visit's steps, once it is trained
        self.examples: int | None = None  # that the client holds, if its trainer says so, once it is trained
        self.error: DivergedError | None = None
        self._queue = queue

    def resolve(self) -> Tensor:
        """Return the upload, float32 ``(d,)``; trains if that has not been done yet.

        Raises ``DivergedError``, which names the client and the version, if it is not finite.
        """
        if self.error is not None:
            raise self.error
        if self.vector is None:
            self._queue.train(self)
            return self.resolve()
        return self.vector


class TrainingQueue:
    """The promised but untrained jobs in the order of visits, and client memories.

    A client's upload may depend on its memory of its last counted visit, but its training does not. So jobs are
    trained in any order, and uploads are made in the order of each client's visits. Vectors have ``length`` entries.
    """

    def __init__(self, trainer: Trainer, length: int, seed: int) -> None:
        self._trainer = trainer
        self._length = length
        self._seed = seed
        # Its oldest are found at once. A dict would first pass over all that were taken from its front.
        self._waiting: OrderedDict[PromisedUpload, None] = OrderedDict()
        self._memories: dict[int, Memory] = {}  # of each client's last counted visit, where a client needs one

    def promise(self, job: Job) -> PromisedUpload:
        """Return the promise of a job's upload."""
        upload = PromisedUpload(job, self)
        corrects = job.offset is not None
        if self._trainer.keeps_states or has_memory(job.payload, job.plan, corrects_gradients=corrects):
            upload.before = self._memories.get(job.client)
            upload.memory = Memory(upload)
        self._waiting[upload] = None
        self._trainer.submit(job)
        return upload

    def kept(
        self,
        vector: Tensor,
        memory: Tensor | None,
        loss: float | None = None,
        *,
        state: bytes | None = None,
        examples: int | None = None,
    ) -> PromisedUpload:
        """Return a promise that was kept before the run was interrupted."""
        upload = PromisedUpload(None, self)
        upload.vector, upload.loss, upload.examples = vector, loss, examples
        upload.memory = None if memory is None and state is None else Memory(None, memory, state)
        return upload

    def cancel(self, upload: PromisedUpload) -> None:
        """Drop a job whose result is no longer needed."""
        self._waiting.pop(upload, None)
        if upload.job is not None:
            self._trainer.cancel(upload.job)
        upload.job = upload.before = upload.memory = None

    def note_counted(self, client: int, upload: PromisedUpload) -> None:
        """Let a client keep its memory of a visit that the server has counted."""
        if upload.memory is not None:
            self._memories[client] = upload.memory

    def memory(self, client: int) -> Tensor | None:
        """Return the client's memory, float32 ``(d,)``; None if it has none. May train."""
        memory = self._memories.get(client)
        return None if memory is None else memory.resolve()

    def train(self, needed: PromisedUpload) -> None:
        """Train a job and the client's earlier ones, whose memories it needs.

        The oldest jobs fill the batch.
        """
        chain = [needed]
        while (before := chain[-1].before) and before.upload and before.upload.error is None:
            chain.append(before.upload)
        chain.reverse()
        for upload in chain:
            del self._waiting[upload]
        limit = self._trainer.batch_limit
        todo = [*chain, *islice(self._waiting, -len(chain) % limit)]
        for first in range(0, len(todo), limit):
            batch = todo[first : first + limit]
            jobs = [_with_state(upload.job, upload.before) for upload in batch if upload.job is not None]
            for upload, result in zip(batch, self._trainer.collect(jobs), strict=True):
                self._waiting.pop(upload, None)
                self._keep(upload, result)

    def _keep(self, upload: PromisedUpload, result: Result) -> None:
        """Keep a result, or the error: it is raised only where the result is needed."""
        job, before = upload.job, upload.before
        assert job is not None
        if before is not None and before.upload is not None:
            upload.error = before.upload.error
            return
        try:
            _check_result(result, self._length)
            if not math.isfinite(result.loss):
                raise ValueError(f"its loss is {result.loss}")
            vector, memory = self._send(job, result.vector, None if before is None else before.vector)
        except ValueError as error:
            # The job is kept, so that a run that resumes from a checkpoint fails in the same way.
            why = "; or does none of its labels count in your loss?" if math.isnan(result.loss) else ""
            upload.error = DivergedError(
                f"training diverged: client {job.client}, from version {job.version}: {error}; "
                f"lower local.lr or set local.clip_norm{why}"
            )
            return
        upload.vector, upload.loss, upload.examples = vector, result.loss, result.examples
        upload.job = upload.before = None
        if upload.memory is not None:
            upload.memory.vector, upload.memory.state = memory, result.state
            upload.memory.upload = None

    def _send(self, job: Job, vector: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return the vector as the server gets it, and the client's new memory."""
        plan, sent, kept = job.plan, vector, None
        if not is_plain(job.payload, plan):  # most are, and need not pay for a conversion
            seed = integer(self._seed, Purpose.COMPRESSION, job.client, job.visit) if plan.compression else 0
            update = send(job.payload, _array(vector), None if memory is None else _array(memory), plan, seed)
            sent = torch.from_numpy(update.vector).to(vector.device)
            kept = None if update.memory is None else torch.from_numpy(update.memory).to(vector.device)
            check_vector(sent, self._length)
        if job.offset is not None:
            kept = torch.from_numpy(control_variate(_array(vector), _array(job.offset), plan)).to(vector.device)
        return sent, kept

    def state_dict(self) -> dict[str, Any]:
        """Return the clients' memories, after training them if needed.

        Jobs are saved with their visits.
        """
        resolved = {client: memory.resolve() for client, memory in self._memories.items()}
        vectors = {client: vector for client, vector in resolved.items() if vector is not None}
        states = {
            f"state.{client}": bytes_tensor(memory.state)
            for client, memory in self._memories.items()
            if memory.state is not None
        }
        return {
            "memories_of": torch.tensor(list(vectors), dtype=torch.int64),
            "memories": torch.stack(list(vectors.values())) if vectors else torch.zeros(0, self._length),
            **states,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from saved memories."""
        memories = zip(state["memories_of"].tolist(), state["memories"], strict=True)
        self._memories = {client: Memory(None, memory.clone()) for client, memory in memories}
        for client, data in under("state", state).items():
            self._memories.setdefault(int(client), Memory(None)).state = tensor_bytes(data)


def bytes_tensor(data: bytes) -> Tensor:
    """Return bytes as a tensor, for a checkpoint."""
    return torch.from_numpy(np.frombuffer(data, np.uint8).copy())


def tensor_bytes(tensor: Tensor) -> bytes:
    """Return the bytes of ``bytes_tensor``."""
    return tensor.cpu().numpy().tobytes()


def _with_state(job: Job, before: Memory | None) -> Job:
    """Return a job with the state of the client's last counted visit, if it has one."""
    return job if before is None or before.state is None else job._replace(state=before.state)


def _array(vector: Tensor) -> NDArray[np.float32]:
    """Return a vector's entries, in its own memory if it lies on the CPU."""
    return vector.cpu().numpy()


def _check_result(result: Result, length: int) -> None:
    """Raise ``ValueError`` unless the vector is finite, float32 ``(length,)``."""
    if result.squares is not None and math.isfinite(result.squares):
        check_shape(result.vector, length)
    else:  # the squares of finite entries may overflow
        check_vector(result.vector, length)
