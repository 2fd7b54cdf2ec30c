"""The actors of a Ray cluster that train clients, and their messages."""

import platform
import traceback
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError
from torch import Tensor

from offbeat.training.trainers.backend import Job
from offbeat.training.trainers.distributed.packed_workload import PackedWorkload, unpack_workload
from offbeat.training.trainers.graph_loop import make_loop
from offbeat.training.trainers.loop import LoopBackend
from offbeat.training.worker_process import keep_freed_memory
from offbeat.training.workload import as_tensor

Vector = NDArray[np.float32]
"""Vectors travel as arrays, which Ray keeps in memory that processes share."""

Reply = tuple[Vector, float] | OffbeatError | str
"""The result's vector and loss, or a user's mistake, or a traceback."""


class RayJob(NamedTuple):
    """A ``Job`` without its vectors, which are given by their indices in the batch."""

    job: Job
    start: int
    offset: int | None


def versions() -> dict[str, str]:
    """Return the versions on which results depend."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"Python": python, "torch": torch.__version__, "offbeat": version("offbeat")}


class TrainingActor:
    """A process that trains clients one after the other, with one thread.

    Args:
        packed: The workload, without its tensors.
        arrays: The workload's tensors, read-only.
    """

    def __init__(self, packed: PackedWorkload, arrays: Mapping[str, NDArray[Any]]) -> None:
        torch.set_num_threads(1)
        keep_freed_memory()
        self._packed = packed._replace(tensors={name: as_tensor(array) for name, array in arrays.items()})
        self._backend: LoopBackend | None = None

    def versions(self) -> dict[str, str]:
        """Return the versions of the actor's machine."""
        return versions()

    def train(self, batch: list[RayJob], *vectors: Vector) -> list[Reply]:
        """Return the replies of a batch of jobs, in order."""
        tensors = [as_tensor(vector).to(self._packed.accelerator.device) for vector in vectors]
        return [self._reply(message, tensors) for message in batch]

    def _reply(self, message: RayJob, tensors: list[Tensor]) -> Reply:
        try:
            # Created with the first job, so that a model that cannot be loaded is a reply, too.
            self._backend = self._backend or make_loop(unpack_workload(self._packed, "ray"))
            offset = None if message.offset is None else tensors[message.offset]
            job = message.job._replace(start=tensors[message.start], offset=offset)
            with self._packed.accelerator.numerics():
                (result,) = self._backend.train([job])
            return result.vector.cpu().numpy(), result.loss
        except OffbeatError as error:
            return OffbeatError(str(error))
        except Exception:
            return traceback.format_exc()
