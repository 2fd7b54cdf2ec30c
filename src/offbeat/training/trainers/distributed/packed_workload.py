"""A workload for other processes: the user's code as bytes, and tensors."""

import copy
import io
import sys
import sysconfig
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
import torch
from offbeat_core.errors import OffbeatError
from offbeat_core.user_code_errors import error_line
from torch import Tensor, nn

from offbeat.model_inputs import find_inputs, map_inputs, name_inputs
from offbeat.training.accelerator import CPU, Accelerator
from offbeat.training.augmentation import AugmentationName
from offbeat.training.flat_model import FlatModel
from offbeat.training.objectives import Objective
from offbeat.training.trainers.hooks import parameter_with_hook
from offbeat.training.workload import Examples, Workload

_STANDARD_LIBRARY = [Path(sysconfig.get_path(kind)) for kind in ("stdlib", "platstdlib")]
_INSTALLED = {"site-packages", "dist-packages"}  # names of folders anywhere


class PackedWorkload(NamedTuple):
    """A workload that another process can load, without the test set.

    Attributes:
        tensors: ``code``, from ``pack_code``; ``inputs``, or ``inputs.NAME`` for each of several; ``labels``;
            ``shards``, all concatenated, and their ``sizes``. All on the CPU.
        seed: The run's seed.
        augmentation: The workload's.
        accelerator: The workload's; of several GPUs, the process's only one.
    """

    tensors: Mapping[str, Tensor]
    seed: int
    augmentation: AugmentationName | None = None
    accelerator: Accelerator = CPU


def pack_workload(workload: Workload, trainer: str) -> PackedWorkload:
    """Return a workload for other processes; the model's values are not used.

    Raises ``OffbeatError``, which names the trainer, if the model or the loss cannot be sent.
    """
    model, accelerator = workload.model, workload.accelerator
    hooked = parameter_with_hook(model.module)
    if hooked is not None:  # copies and pickles lose it without an error
        raise OffbeatError(
            f"trainer = {trainer!r}: the model's parameter {hooked} has a hook, which cannot be sent to another "
            "process: use 'loop'"
        )
    model.load(model.vector)  # resets the buffers
    # The other process may not have the GPU that the module is on.
    module = model.module if accelerator.device.type == "cpu" else copy.deepcopy(model.module).cpu()
    tensors = {
        "code": pack_code(module, workload.objective.loss, trainer),
        **name_inputs("inputs", map_inputs(Tensor.cpu, workload.train.inputs)),
        "labels": workload.train.labels.cpu(),
        "shards": torch.from_numpy(np.concatenate(workload.shards)),
        "sizes": torch.tensor([len(shard) for shard in workload.shards]),
    }
    here = replace(accelerator, device=torch.device(accelerator.device.type))
    return PackedWorkload(tensors, workload.seed, workload.augmentation, here)


def unpack_workload(packed: PackedWorkload, trainer: str = "processes") -> Workload:
    """Return the workload on its accelerator.

    On a CPU its examples share the tensors' memory. Raises ``OffbeatError`` if the model or the loss cannot be loaded
    in this process.
    """
    tensors = packed.tensors
    module, loss = unpack_code(tensors["code"], trainer)
    return Workload(
        FlatModel(module),
        Objective(loss),
        Examples(find_inputs("inputs", tensors), tensors["labels"]),
        np.split(tensors["shards"].numpy(), np.cumsum(tensors["sizes"].numpy())[:-1]),
        packed.seed,
        augmentation=packed.augmentation,
    ).to(packed.accelerator)


def pack_code(module: nn.Module, loss: Callable[[Tensor, Tensor], Tensor], trainer: str = "processes") -> Tensor:
    """Return a module and a loss as bytes, uint8 ``(n,)``.

    Code from the user's own files is included, so the other process does not run these files again. Raises
    ``OffbeatError``, which names the trainer, if they cannot be sent.
    """
    buffer = io.BytesIO()
    try:
        with _users_modules_by_value():
            # Unlike plain pickle, this writes memory that parameters share only once.
            torch.save((module, loss), buffer, pickle_module=cloudpickle)
    except Exception as error:  # pickling a user's code can raise any type
        raise _cannot_be_sent(error, trainer) from error
    return torch.frombuffer(buffer.getbuffer(), dtype=torch.uint8)


def unpack_code(code: Tensor, trainer: str = "processes") -> tuple[nn.Module, Callable[[Tensor, Tensor], Tensor]]:
    """Return the packed module and loss.

    Raises ``OffbeatError`` if they cannot be loaded in this process.
    """
    try:
        return torch.load(io.BytesIO(code.numpy().tobytes()), weights_only=False)
    except Exception as error:
        raise _cannot_be_sent(error, trainer) from error


def _cannot_be_sent(error: Exception, trainer: str) -> OffbeatError:
    return OffbeatError(
        f"trainer = {trainer!r}: the model or the loss cannot be sent to another process ({error_line(error)}): "
        "use 'loop'"
    )


@contextmanager
def _users_modules_by_value() -> Generator[None]:
    modules = [module for name, module in list(sys.modules.items()) if _is_users(name, module)]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def _is_users(name: str, module: Any) -> bool:
    """Return whether a module is a user's file, neither installed nor part of Python."""
    # sys.modules also holds other objects, and modules that import much when an attribute is read.
    file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
    # Skip second names of a module, and modules that the user has registered.
    if file is None or module.__name__ != name or name in cloudpickle.list_registry_pickle_by_value():
        return False
    path = Path(file)
    return not (
        name.split(".")[0] == "offbeat"
        or not _INSTALLED.isdisjoint(path.parts)
        or any(path.is_relative_to(folder) for folder in _STANDARD_LIBRARY)
    )
