import pytest
import torch
from offbeat_core.errors import OffbeatError
from torch.nn.functional import cross_entropy

from offbeat.training.accelerator import CPU, Accelerator
from offbeat.training.device_errors import explained, tensors_elsewhere
from offbeat.training.fit_check import check_fit
from offbeat.training.flat_model import FlatModel
from tests.training.conftest import made
from tests.training.separate_devices import META


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
