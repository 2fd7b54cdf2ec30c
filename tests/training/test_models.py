from collections.abc import Callable

import numpy as np
import pytest
import torch
from offbeat_core.errors import OffbeatError
from torch import nn
from torch.nn.functional import conv2d, group_norm, max_pool2d

from offbeat.training.flat_model import FlatModel
from offbeat.training.models import cnn, initial_randomness, lstm, mlp, resnet18, softmax_regression


def flat(make: Callable[[], nn.Module], seed: int = 1) -> FlatModel:
    with initial_randomness(seed):
        return FlatModel(make())


def build(seed: int) -> torch.Tensor:
    return flat(lambda: mlp((1, 8, 8), 10, [16]), seed).vector


def test_softmax_regression_is_one_affine_map_that_starts_at_zero():
    model = flat(lambda: softmax_regression((1, 2), 2))
    assert model.vector.tolist() == [0.0] * 6
    model.vector.copy_(torch.tensor([1.0, 2, 3, 4, 10, 20]))
    assert model.module(torch.tensor([[[1.0, 1.0]]])).tolist() == [[13.0, 27.0]]


@pytest.mark.parametrize(("hidden", "widths"), [([], [12, 5]), ((7, 3), [12, 7, 3, 5])])
def test_mlp_has_the_hidden_layers_that_are_asked_for(hidden, widths):
    module = flat(lambda: mlp((3, 2, 2), 5, hidden)).module
    layers = [layer for layer in module if isinstance(layer, nn.Linear)]
    assert [layer.in_features for layer in layers] + [layers[-1].out_features] == widths
    assert sum(isinstance(layer, nn.ReLU) for layer in module) == len(hidden)
    assert not isinstance(module[-1], nn.ReLU)
    assert module(torch.zeros(6, 3, 2, 2)).shape == (6, 5)


def test_mlp_is_relu_between_affine_maps():
    model = flat(lambda: mlp((1,), 1, [2]))
    model.vector.copy_(torch.tensor([1.0, -1.0, 0.0, 0.0, 2.0, 3.0, 0.5]))
    # 2·relu(x) + 3·relu(−x) + ½
    assert model.module(torch.tensor([[1.0], [-1.0], [0.0]])).flatten().tolist() == [2.5, 3.5, 0.5]


def test_the_initial_model_depends_on_the_seed_alone():
    before = torch.get_rng_state()
    torch.manual_seed(1)
    one = build(7)
    torch.manual_seed(2)
    other = build(7)
    torch.set_rng_state(before)
    assert torch.equal(one, other)
    assert not torch.equal(one, build(2))
    assert one.unique().numel() > 1000


def test_torchs_own_generator_does_not_change_even_after_an_error():
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


def images(*shape: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(1).normal(size=shape).astype(np.float32))


class TestCnn:
    def test_has_the_papers_sizes(self):
        # 3·32·9 + 32, 32·64·9 + 64, 64·64·9 + 64, 64·8·8·64 + 64, 64·10 + 10
        model = flat(lambda: cnn((3, 32, 32), 10))
        assert model.vector.numel() == 896 + 18_496 + 36_928 + 262_208 + 650

    @pytest.mark.parametrize("shape", [(1, 4, 4), (3, 9, 6)])
    def test_equals_the_papers_model_layer_by_layer(self, shape):
        model = flat(lambda: cnn(shape, 5))
        w1, b1, w2, b2, w3, b3, w4, b4, w5, b5 = model.named(model.vector).values()
        x = images(3, *shape)
        hidden = max_pool2d(conv2d(x, w1, b1, padding=1).relu(), 2, stride=2)
        hidden = max_pool2d(conv2d(hidden, w2, b2, padding=1).relu(), 2, stride=2)
        hidden = conv2d(hidden, w3, b3, padding=1).relu().flatten(1)
        expected = (hidden @ w4.T + b4).relu() @ w5.T + b5
        torch.testing.assert_close(model.module(x).detach(), expected, rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("shape", [(3, 3, 4), (3, 4, 3), (28, 28), (0, 8, 8), ()])
    def test_refuses_inputs_that_are_not_images(self, shape):
        with pytest.raises(OffbeatError, match=r"cnn takes images .* at least 4x4 pixels, but .* have shape \("):
            cnn(shape, 10)


class TestResnet18:
    def test_has_as_many_parameters_as_resnet18_for_cifar(self):
        """Counted layer by layer from table 1 of He et al.; a norm layer has two numbers a channel."""
        convolutions = 3 * 64 * 9
        channels = 64
        for before, after in [(64, 64), (64, 128), (128, 256), (256, 512)]:
            convolutions += (before + 3 * after) * after * 9
            channels += 4 * after
            if before != after:
                convolutions += before * after
                channels += after
        model = flat(lambda: resnet18((3, 32, 32), 10))
        assert model.vector.numel() == convolutions + 2 * channels + 512 * 10 + 10

    @pytest.mark.parametrize("groups", [2, 32])
    def test_equals_the_papers_model_layer_by_layer(self, groups):
        model = flat(lambda: resnet18((2, 8, 10), 5, groups))
        # Scales of one and shifts of zero would hide a norm that is missing at the end of a shortcut.
        noise = np.random.default_rng(2).normal(size=len(model.vector))
        model.vector.add_(torch.from_numpy(0.01 * noise.astype(np.float32)))
        values = list(model.named(model.vector).values())

        def convolve(x: torch.Tensor, stride: int = 1, padding: int = 1) -> torch.Tensor:
            weight, scale, shift = (values.pop(0) for _ in range(3))
            return group_norm(conv2d(x, weight, stride=stride, padding=padding), groups, scale, shift)

        x = images(3, 2, 8, 10)
        hidden = convolve(x).relu()
        for number, stride in enumerate([1, 1, 2, 1, 2, 1, 2, 1]):
            residual = convolve(convolve(hidden, stride).relu())
            hidden = (residual + (convolve(hidden, stride, 0) if stride == 2 else hidden)).relu()
            assert hidden.shape[1] == 64 * 2 ** (number // 2)
        expected = hidden.mean(dim=(2, 3)) @ values[0].T + values[1]
        torch.testing.assert_close(model.module(x).detach(), expected, rtol=1e-3, atol=1e-4)

    def test_refuses_images_that_are_too_small(self):
        with pytest.raises(OffbeatError, match=r"resnet18 takes images .* at least 8x8 pixels"):
            resnet18((3, 7, 8), 10)

    @pytest.mark.parametrize("groups", [0, -2, 3, 128])
    def test_refuses_groups_that_do_not_divide_the_channels(self, groups):
        with pytest.raises(OffbeatError, match=f"groups must divide 64, got {groups}"):
            resnet18((3, 8, 8), 10, groups)


class TestLstm:
    def test_has_the_papers_sizes(self):
        # 25 numbers a token; four gates of 16 units from (input, state) with two biases; 16 weights and a bias a class
        model = flat(lambda: lstm(100, 2))
        assert model.vector.numel() == 100 * 25 + 4 * 16 * (25 + 16 + 2) + 4 * 16 * (16 + 16 + 2) + 16 * 2 + 2

    def test_is_an_lstm_step_by_step(self):
        """Hochreiter and Schmidhuber's with forget gates, in numpy, for sequences of several lengths."""
        model = flat(lambda: lstm(7, 3, embedding=4, hidden=5, layers=2), seed=3)
        named = {name: value.double().numpy() for name, value in model.named(model.vector).items()}
        inputs = torch.tensor([[3, 1, 6, 2], [5, 5, 0, 0], [2, 0, 4, 0], [1, 0, 0, 0]])

        def sigmoid(x: np.ndarray) -> np.ndarray:
            return 1 / (1 + np.exp(-x))

        def output(tokens: list[int]) -> np.ndarray:
            states = [named["embedding.weight"][token] for token in tokens]
            for layer in range(2):
                w, u = named[f"lstm.weight_ih_l{layer}"], named[f"lstm.weight_hh_l{layer}"]
                bias = named[f"lstm.bias_ih_l{layer}"] + named[f"lstm.bias_hh_l{layer}"]
                state, cell, after = np.zeros(5), np.zeros(5), []
                for x in states:
                    i, f, g, o = np.split(w @ x + u @ state + bias, 4)
                    cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
                    state = sigmoid(o) * np.tanh(cell)
                    after.append(state)
                states = after
            return named["output.weight"] @ states[-1] + named["output.bias"]

        expected = [output(tokens) for tokens in ([3, 1, 6, 2], [5, 5], [2, 0, 4], [1])]
        assert model.module(inputs).detach().numpy() == pytest.approx(np.array(expected), abs=1e-6)

    def test_more_padding_changes_nothing_and_is_not_trained(self):
        model = flat(lambda: lstm(7, 3))
        short = torch.tensor([[3, 1], [2, 0]])
        padded = torch.nn.functional.pad(short, (0, 5))
        torch.testing.assert_close(model.module(padded), model.module(short), rtol=0, atol=1e-6)
        nothing = torch.zeros(1, padded.shape[1], dtype=torch.int64)
        model.module(torch.cat([padded, nothing])).square().sum().backward()
        slopes = model.named(model.gradient)["embedding.weight"]
        assert [bool(row.any()) for row in slopes] == [False, True, True, True, False, False, False]

    def test_a_sequence_of_padding_is_accepted(self):
        module = flat(lambda: lstm(7, 3)).module
        assert module(torch.zeros(2, 4, dtype=torch.int64)).isfinite().all()

    @pytest.mark.parametrize("name", ["tokens", "embedding", "hidden", "layers"])
    def test_refuses_sizes_below_one(self, name):
        with pytest.raises(OffbeatError, match=f"{name} must be at least 1, got 0"):
            lstm(**{"tokens": 5, "classes": 2, name: 0})
