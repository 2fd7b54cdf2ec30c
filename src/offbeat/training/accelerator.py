"""The processor that a run trains and evaluates on, and how it computes."""

import os
import random
import re
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from offbeat_core.errors import OffbeatError
from offbeat_core.user_code_errors import error_line
from torch import Tensor, nn

Precision = Literal["float32", "tf32", "bf16"]

_CUBLAS = "CUBLAS_WORKSPACE_CONFIG"  # without it, cuBLAS may add in another order each time


_DEVICE_NAME = re.compile(r"auto|cpu|mps|cuda(:(0|[1-9]\d?))?")


def check_device_name(name: str) -> str:
    """Return the name; a ``ValueError`` if it is not that of a kind of device."""
    if not _DEVICE_NAME.fullmatch(name):
        raise ValueError("must be auto, cpu, cuda, cuda:N or mps")
    return name


@dataclass(frozen=True)
class Accelerator:
    """A processor, and the arithmetic that is used on it.

    Attributes:
        device: Where the model, the updates and the algorithm's sums lie.
        precision: Of matrix products and convolutions. ``tf32`` rounds their inputs to 10 bits on NVIDIA GPUs, ``bf16``
            computes forward passes with bfloat16; models, gradients and sums are float32 in each case.
        deterministic: On a CUDA GPU, use only operations that give the same bits each time.

    Raises:
        OffbeatError: ``tf32`` on a device that is not a CUDA GPU.
    """

    device: torch.device
    precision: Precision = "float32"
    deterministic: bool = True

    def __post_init__(self) -> None:
        if self.precision == "tf32" and not self.is_cuda:
            raise OffbeatError(
                f"precision = 'tf32' is for NVIDIA GPUs, the device is {self.device}: use float32 or bf16"
            )

    @property
    def is_cuda(self) -> bool:
        """True on an NVIDIA or AMD GPU."""
        return self.device.type == "cuda"

    def autocast(self) -> AbstractContextManager[object]:
        """Return a context for forward passes in the precision."""
        if self.precision != "bf16":
            return nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16)

    @contextmanager
    def forked_randomness(self) -> Generator[None]:
        """Make a context after which all global generators are as before.

        They are torch's, numpy's and Python's.
        """
        python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - user code draws from it
        with torch.random.fork_rng(devices=[self.device] if self.is_cuda else []):
            try:
                yield
            finally:
                random.setstate(python)
                np.random.set_state(numpy)  # noqa: NPY002

    def seed(self, seed: int) -> None:
        """Seed Python's and numpy's generators, and torch's of the CPU and the device."""
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        torch.default_generator.manual_seed(seed)
        if self.is_cuda:
            with torch.cuda.device(self.device):
                torch.cuda.manual_seed(seed)

    @contextmanager
    def numerics(self) -> Generator[None]:
        """Set torch's global settings for the precision and for equal bits.

        The CPU needs none of them. Those of before are restored.
        """
        if not self.is_cuda:
            yield
            return
        os.environ.setdefault(_CUBLAS, ":4096:8")
        before = (
            torch.get_float32_matmul_precision(),
            torch.backends.cudnn.allow_tf32,
            torch.backends.cudnn.benchmark,
            torch.are_deterministic_algorithms_enabled(),
            torch.utils.deterministic.fill_uninitialized_memory,  # pyright: ignore[reportAttributeAccessIssue]
        )
        is_tf32 = self.precision == "tf32"
        _set_torch("high" if is_tf32 else "highest", is_tf32, False, self.deterministic, False)
        try:
            yield
        finally:
            _set_torch(*before)


CPU = Accelerator(torch.device("cpu"))


def _set_torch(matmul: str, cudnn_tf32: bool, benchmark: bool, deterministic: bool, fill: bool) -> None:
    torch.set_float32_matmul_precision(matmul)
    torch.backends.cudnn.allow_tf32 = cudnn_tf32
    torch.backends.cudnn.benchmark = benchmark
    torch.use_deterministic_algorithms(deterministic)
    # New memory with NaN, to find reads of it, is slow.
    torch.utils.deterministic.fill_uninitialized_memory = fill  # pyright: ignore[reportAttributeAccessIssue]


def choose_device(name: str) -> torch.device:
    """Return the device of a name; ``auto`` takes a CUDA GPU where there is one.

    Raises:
        OffbeatError: The device is not there.
    """
    try:
        check_device_name(name)
    except ValueError as error:
        raise OffbeatError(f"device = {name!r}: {error}") from None
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda":
        _check_cuda(name, device)
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise OffbeatError("device = 'mps': this machine has no Apple GPU that PyTorch can use: use 'cpu' or 'auto'")
    return device


def _check_cuda(name: str, device: torch.device) -> None:
    if not torch.backends.cuda.is_built():
        raise OffbeatError(
            f"device = '{name}': this PyTorch is built without CUDA: install one that is, or use 'cpu' or 'auto'"
        )
    if not torch.cuda.is_available():
        raise OffbeatError(f"device = '{name}': PyTorch finds no CUDA GPU here: use 'cpu' or 'auto'")
    number = torch.cuda.device_count()
    if ":" in name and device.index >= number:
        raise OffbeatError(f"device = '{name}': there are {number} GPUs here, cuda:0 to cuda:{number - 1}")


def explained(error: OffbeatError, module: nn.Module, accelerator: Accelerator) -> OffbeatError:
    """Return an error of a model's step, with advice where the device is the reason."""
    cause = error.__cause__
    message = "" if cause is None else error_line(cause)
    if "deterministic" in message:
        return OffbeatError(f"{error}: change that layer, or set deterministic = false")
    elsewhere = tensors_elsewhere(module, accelerator)
    if "same device" in message and elsewhere:
        return OffbeatError(
            f"{error}: the model's {' and '.join(elsewhere)} did not move to {accelerator.device}: "
            "register such tensors with register_buffer(name, tensor, persistent=False)"
        )
    return error


def tensors_elsewhere(module: nn.Module, accelerator: Accelerator) -> list[str]:
    """Return the names of plain attributes that are tensors on another device."""
    return [
        f"{name}.{attribute}" if name else attribute
        for name, layer in module.named_modules()
        for attribute, value in vars(layer).items()
        if isinstance(value, Tensor) and value.device.type != accelerator.device.type
    ]
