"""The actors of a Ray cluster that train clients, and their messages."""

import copy
import platform
import traceback
from dataclasses import replace
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError
from torch import Tensor

from offbeat.model_inputs import Inputs, map_inputs
from offbeat.training.accelerator import Accelerator
from offbeat.training.augmentation import AugmentationName
from offbeat.training.flat_model import FlatModel
from offbeat.training.objectives import Objective
from offbeat.training.trainers.backend import Job
from offbeat.training.trainers.distributed.packed_code import pack_code, refuse_parameter_hooks, unpack_code
from offbeat.training.trainers.graph_loop import GraphBackend
from offbeat.training.trainers.loop import LoopBackend
from offbeat.training.worker_process import keep_freed_memory
from offbeat.training.workload import Examples, Workload, as_tensor

Vector = NDArray[np.float32]
"""Vectors travel as arrays, which Ray keeps in memory that processes share."""

Reply = tuple[Vector, float] | OffbeatError | str
"""The result's vector and loss, or a user's mistake, or a traceback."""


class PackedWorkload(NamedTuple):
    """A workload that another process can load, without the test set."""

    code: NDArray[np.uint8]
    inputs: Inputs[NDArray[Any]]
    labels: NDArray[Any]
    shards: NDArray[np.int64]  # all concatenated
    sizes: list[int]
    seed: int
    augmentation: AugmentationName | None
    accelerator: Accelerator  # with a GPU of its own, each actor sees it as the only one


class RayJob(NamedTuple):
    """A ``Job`` without its vectors, which are given by their indices in the batch."""

    job: Job
    start: int
    offset: int | None


def pack_workload(workload: Workload) -> PackedWorkload:
    """Return a workload for actors.

    Raises ``OffbeatError`` if the model or the loss cannot be sent.
    """
    refuse_parameter_hooks(workload.model.module, "ray")
    workload.model.load(workload.model.vector)  # resets the buffers
    is_here = workload.accelerator.device.type == "cpu"
    # An actor may not have the GPU that the module is on.
    module = workload.model.module if is_here else copy.deepcopy(workload.model.module).cpu()
    return PackedWorkload(
        pack_code(module, workload.objective.loss, trainer="ray").numpy(),
        map_inputs(lambda part: part.cpu().numpy(), workload.train.inputs),
        workload.train.labels.cpu().numpy(),
        np.concatenate(workload.shards),
        [len(shard) for shard in workload.shards],
        workload.seed,
        workload.augmentation,
        replace(workload.accelerator, device=torch.device(workload.accelerator.device.type)),
    )


def versions() -> dict[str, str]:
    """Return the versions on which results depend."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"Python": python, "torch": torch.__version__, "offbeat": version("offbeat")}


class TrainingActor:
    """A process that trains clients one after the other, with one thread."""

    def __init__(self, packed: PackedWorkload) -> None:
        torch.set_num_threads(1)
        keep_freed_memory()
        self._packed = packed
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
            self._backend = self._backend or _make_backend(_unpack(self._packed))
            offset = None if message.offset is None else tensors[message.offset]
            job = message.job._replace(start=tensors[message.start], offset=offset)
            with self._packed.accelerator.numerics():
                (result,) = self._backend.train([job])
            return result.vector.cpu().numpy(), result.loss
        except OffbeatError as error:
            return OffbeatError(str(error))
        except Exception:
            return traceback.format_exc()


def _unpack(packed: PackedWorkload) -> Workload:
    module, loss = unpack_code(torch.from_numpy(packed.code.copy()), trainer="ray")
    return Workload(
        FlatModel(module),
        Objective(loss),
        Examples(map_inputs(as_tensor, packed.inputs), as_tensor(packed.labels)),
        # Copied, since the backend makes tensors of them.
        np.split(packed.shards.copy(), np.cumsum(packed.sizes)[:-1]),
        packed.seed,
        augmentation=packed.augmentation,
    ).to(packed.accelerator)


def _make_backend(workload: Workload) -> LoopBackend:
    return GraphBackend(workload) if workload.accelerator.is_cuda else LoopBackend(workload)
