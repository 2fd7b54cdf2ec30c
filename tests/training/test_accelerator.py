import os
import random

import numpy as np
import pytest
import torch
from offbeat_core.errors import OffbeatError
from torch.nn.functional import cross_entropy

from offbeat.training.accelerator import (
    CPU,
    Accelerator,
    check_device_name,
    choose_device,
    explained,
    tensors_elsewhere,
)
from offbeat.training.fit_check import check_fit
from offbeat.training.flat_model import FlatModel
from tests.training.conftest import made
from tests.training.separate_devices import META

CUDA = torch.device("cuda")
needs_no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


@pytest.mark.parametrize("name", ["auto", "cpu", "cuda", "cuda:0", "cuda:17", "mps"])
def test_the_names_of_devices(name):
    assert check_device_name(name) == name


@pytest.mark.parametrize("name", ["", "gpu", "cuda:", "cuda:x", "cuda:01", "cuda:1000", "cpu:0", "CUDA", " cuda"])
def test_other_names_are_refused(name):
    with pytest.raises(OffbeatError, match="must be auto, cpu, cuda, cuda:N or mps"):
        choose_device(name)


@needs_no_gpu
def test_a_machine_without_a_gpu():
    assert choose_device("auto") == choose_device("cpu") == torch.device("cpu")
    with pytest.raises(OffbeatError, match=r"device = 'cuda': .*: (install one that is, or )?use 'cpu' or 'auto'$"):
        choose_device("cuda")
    with pytest.raises(OffbeatError, match="device = 'mps': this machine has no Apple GPU"):
        choose_device("mps")


def test_a_gpu_that_is_not_there(monkeypatch):
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("auto") == CUDA
    assert choose_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(OffbeatError, match="device = 'cuda:2': there are 2 GPUs here, cuda:0 to cuda:1"):
        choose_device("cuda:2")


def settings():
    return (
        torch.get_float32_matmul_precision(),
        torch.backends.cudnn.allow_tf32,
        torch.are_deterministic_algorithms_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
    )


@pytest.mark.parametrize(
    ("precision", "deterministic", "expected"),
    [
        ("float32", True, ("highest", False, True, False)),
        ("tf32", True, ("high", True, True, False)),
        ("bf16", False, ("highest", False, False, False)),
    ],
)
def test_the_numerics_of_a_gpu_are_set_and_restored(monkeypatch, precision, deterministic, expected):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    before = settings()
    with Accelerator(CUDA, precision, deterministic).numerics():
        assert settings() == expected
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert settings() == before


def test_the_cpu_needs_no_settings():
    before = settings()
    with CPU.numerics():
        assert settings() == before


def test_bf16_is_for_forward_passes():
    matrix = torch.ones(2, 2)
    with Accelerator(torch.device("cpu"), "bf16").autocast():
        assert (matrix @ matrix).dtype == torch.bfloat16
    with CPU.autocast():
        assert (matrix @ matrix).dtype == torch.float32


def draw():
    return random.random(), float(np.random.rand()), torch.rand(1).item()  # noqa: NPY002 - as users' code does


def test_all_generators_begin_from_the_seed_and_are_left_as_they_were():
    with CPU.forked_randomness():
        CPU.seed(1)
        with CPU.forked_randomness():
            CPU.seed(2**62 + 5)
            first = draw()
        outside = draw()
        CPU.seed(1)
        assert draw() == outside
        CPU.seed(2**62 + 5)
        assert draw() == first
        CPU.seed(3)
        assert not set(draw()) & set(first)
        CPU.seed(5)
        assert torch.rand(1) == torch.rand(1, generator=torch.Generator().manual_seed(5))


class Unordered(torch.nn.Module):
    """A layer with an operation that has no deterministic form."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)

    def forward(self, inputs):
        outputs = self.linear(inputs)
        return outputs.put(torch.zeros(1, dtype=torch.int64), outputs[:1, 0])


class Shifted(torch.nn.Module):
    """A layer with a tensor that is neither a parameter nor a buffer."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)
        self.shift = torch.ones(2)

    def forward(self, inputs):
        return self.linear(inputs) + self.shift


def check(module, accelerator=CPU):
    labels = torch.tensor([0, 1])
    check_fit(FlatModel(module), cross_entropy, torch.ones(2, 3), labels, accelerator=accelerator)


def test_an_operation_that_is_not_deterministic():
    check(made(Unordered))
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(
            OffbeatError, match=r"put_ does not have a .*: change that layer, or set deterministic = false$"
        ):
            check(made(Unordered))
    finally:
        torch.use_deterministic_algorithms(False)


def test_tensors_that_do_not_move():
    module = torch.nn.Sequential(made(Shifted).to("meta"), torch.nn.ReLU())
    assert tensors_elsewhere(module, META) == ["0.shift"]
    cause = RuntimeError(
        "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
    )
    error = OffbeatError("the model failed")
    error.__cause__ = cause
    assert str(explained(error, module, META)) == (
        "the model failed: the model's 0.shift did not move to meta: register such tensors with "
        "register_buffer(name, tensor, persistent=False)"
    )


def test_other_errors_stay_as_they_are():
    error = OffbeatError("the model failed")
    assert explained(error, made(Shifted), Accelerator(torch.device("cuda"))) is error
    error.__cause__ = ValueError("wrong shape")
    assert explained(error, made(Shifted), CPU) is error
