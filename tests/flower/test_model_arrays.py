import numpy as np
import pytest
import torch
from offbeat_core.errors import OffbeatError
from torch import nn

from offbeat.flower.model_arrays import ModelArrays
from tests.flower.apps import net


def test_only_parameters_that_are_trained_are_in_the_vector():
    model = net()
    model[0].bias.requires_grad_(False)
    arrays = ModelArrays(model)
    assert arrays.shapes == {"0.weight": (2, 2), "1.weight": (2,), "1.bias": (2,)}
    assert arrays.vector.tolist() == [1.0] * 8


def test_the_arrays_are_complete_and_in_order():
    model = net()
    arrays = ModelArrays(model)
    named = arrays.named(torch.arange(10.0))
    own = {"1.running_mean": np.array([8.0, 9.0], np.float32)}
    complete = arrays.complete(named, own)
    assert list(complete) == list(model.state_dict())
    assert complete["0.weight"].tolist() == complete["2.weight"].tolist() == [[0, 1], [2, 3]]
    assert complete["1.bias"].tolist() == [8, 9]
    assert complete["1.running_mean"].tolist() == [8, 9]
    assert complete["1.running_var"].tolist() == [1, 1]
    model.load_state_dict({name: torch.from_numpy(array) for name, array in complete.items()})
    assert arrays.complete(arrays.named(arrays.vector), {})["0.weight"].tolist() == [[1, 1], [1, 1]]


def test_own_arrays_are_those_that_are_no_parameters():
    arrays = ModelArrays(net())
    returned = {
        "0.weight": np.zeros((2, 2)),
        "2.weight": np.zeros((2, 2)),
        "1.running_mean": np.ones(2),
        "1.running_var": np.ones(3),
        "other": np.ones(1),
    }
    assert list(arrays.own(returned)) == ["1.running_mean"]


def test_a_model_without_float32_parameters_is_refused():
    with pytest.raises(OffbeatError, match="nothing to train"):
        ModelArrays(nn.ReLU())
    with pytest.raises(OffbeatError, match=r"parameter weight is torch.float64: convert the model with .float\(\)"):
        ModelArrays(nn.Linear(1, 1).double())
