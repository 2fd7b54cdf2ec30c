from collections.abc import Sequence

import pytest
import torch
from torch import nn

from offbeat.training.flat_model import FlatModel
from offbeat.training.models import initial_randomness, mlp, softmax_regression


def build(seed: int) -> torch.Tensor:
    with initial_randomness(seed):
        module = mlp((1, 8, 8), 10, [16])
    return FlatModel(module).vector


def test_softmax_regression_starts_at_zero() -> None:
    with initial_randomness(1):
        module = softmax_regression((1, 8, 8), 10)
    vector = FlatModel(module).vector
    assert vector.shape == (8 * 8 * 10 + 10,)
    assert not vector.any()
    assert module(torch.ones(3, 1, 8, 8)).tolist() == [[0.0] * 10] * 3


def test_softmax_regression_is_one_affine_map() -> None:
    with initial_randomness(1):
        model = FlatModel(softmax_regression((1, 2), 2))
    model.vector.copy_(torch.tensor([1.0, 2, 3, 4, 10, 20]))
    assert model.module(torch.tensor([[[1.0, 1.0]]])).tolist() == [[13.0, 27.0]]


@pytest.mark.parametrize(
    ("hidden", "widths"), [([], [12, 5]), ([7], [12, 7, 5]), ((7, 3), [12, 7, 3, 5]), ([4, 4, 4], [12, 4, 4, 4, 5])]
)
def test_mlp_has_the_hidden_layers_that_are_asked_for(hidden: Sequence[int], widths: list[int]) -> None:
    with initial_randomness(1):
        module = mlp((3, 2, 2), 5, hidden)
    layers = [layer for layer in module if isinstance(layer, nn.Linear)]
    assert [layer.in_features for layer in layers] + [layers[-1].out_features] == widths
    assert sum(isinstance(layer, nn.ReLU) for layer in module) == len(hidden)
    assert not isinstance(module[-1], nn.ReLU)
    assert module(torch.zeros(6, 3, 2, 2)).shape == (6, 5)


def test_mlp_is_relu_between_affine_maps() -> None:
    with initial_randomness(1):
        model = FlatModel(mlp((1,), 1, [2]))
    model.vector.copy_(torch.tensor([1.0, -1.0, 0.0, 0.0, 2.0, 3.0, 0.5]))
    # 2·relu(x) + 3·relu(−x) + ½
    assert model.module(torch.tensor([[1.0], [-1.0], [0.0]])).flatten().tolist() == [2.5, 3.5, 0.5]


def test_one_seed_one_initial_model() -> None:
    one = build(1)
    assert torch.equal(one, build(1))
    assert not torch.equal(one, build(2))
    assert one.unique().numel() > 1000


def test_it_does_not_depend_on_torchs_own_generator() -> None:
    before = torch.get_rng_state()
    torch.manual_seed(1)
    one = build(7)
    torch.manual_seed(2)
    other = build(7)
    torch.set_rng_state(before)
    assert torch.equal(one, other)


def test_torchs_own_generator_is_left_as_it_was_even_after_an_error() -> None:
    before = torch.get_rng_state()
    build(3)
    assert torch.equal(torch.get_rng_state(), before)

    def fail() -> None:
        with initial_randomness(3):
            torch.rand(5)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert torch.equal(torch.get_rng_state(), before)
