"""Convolutions as matrix products are those of PyTorch, up to rounding."""

from contextlib import nullcontext

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn
from torch.func import grad, vmap
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from offbeat.algorithms import LocalPlan
from offbeat.training import models
from offbeat.training.flat_model import FlatModel
from offbeat.training.trainers.backend import Job
from offbeat.training.trainers.batched.unfolded_convolution import unfolded_convolutions
from offbeat.training.trainers.batched.vmap import VmapBackend
from offbeat.training.trainers.loop import LoopBackend
from tests.training.conftest import assert_alike, assert_same_in_parts, data_of, made
from tests.workloads import workload_of


class Calls(TorchDispatchMode):
    """Counts PyTorch's own convolutions."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func in (torch.ops.aten.convolution.default, torch.ops.aten.convolution_backward.default)
        return func(*args, **kwargs or {})


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def assert_close(one, other):
    assert one.shape == other.shape
    assert (one - other).norm() <= 1e-5 * other.norm()


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@given(
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.sampled_from([1, 2, (2, 1)]),
    padding=st.sampled_from([0, 1, (2, 1), "same", "valid"]),
    dilation=st.sampled_from([1, (1, 2)]),
)
def test_outputs_and_gradients_of_every_kind(kernel, stride, padding, dilation):
    assume(padding != "same" or stride == 1)
    kind = {"stride": stride, "padding": padding, "dilation": dilation}
    arguments = [numbers(4, 3, 7, 8), numbers(5, 3, *kernel, seed=1), numbers(5, seed=2)]

    def slopes(mode, convolutions):
        leaves = [argument.clone().requires_grad_() for argument in arguments]
        with mode, Calls() as calls:
            outputs = functional.conv2d(*leaves, **kind)
            outputs.backward(numbers(*outputs.shape, seed=3))
        assert calls.count == convolutions
        assert outputs.is_contiguous()
        return [outputs, *(leaf.grad for leaf in leaves)]

    for one, other in zip(slopes(unfolded_convolutions(), 0), slopes(nullcontext(), 2), strict=True):
        assert_close(one, other)


@pytest.mark.parametrize("kind", [{}, {"stride": 2, "padding": 1}, {"padding": "same", "dilation": 2}], ids=str)
def test_models_with_weights_of_their_own(kind):
    inputs, weights = numbers(3, 4, 2, 7, 8), numbers(3, 5, 2, 3, 3, seed=1)

    def total(weight, images):
        return functional.conv2d(images, weight, **kind).sin().sum()

    def unfolded(weight, images):
        with unfolded_convolutions():
            return total(weight, images)

    with Calls() as calls:
        results = vmap(grad(unfolded, argnums=(0, 1)))(weights, inputs)
    assert calls.count == 0
    for one, other in zip(results, vmap(grad(total, argnums=(0, 1)))(weights, inputs), strict=True):
        assert_close(one, other)


def test_second_derivatives():
    images, weight = numbers(2, 2, 5, 5).double(), numbers(3, 2, 3, 3, seed=1).double()
    leaves = [images.requires_grad_(), weight.requires_grad_()]
    with torch.random.fork_rng(devices=[]), unfolded_convolutions():
        assert torch.autograd.gradgradcheck(lambda *values: functional.conv2d(*values, stride=2, padding=1), leaves)


@pytest.mark.parametrize(
    ("inputs", "weight", "kind"),
    [
        ((2, 4, 5, 5), (4, 2, 3, 3), {"groups": 2}),
        ((4, 5, 5), (3, 4, 3, 3), {}),
    ],
    ids=["groups", "without batch"],
)
def test_others_are_left_alone(inputs, weight, kind):
    with unfolded_convolutions(), Calls() as calls:
        outputs = functional.conv2d(numbers(*inputs), numbers(*weight), **kind)
    assert calls.count == 1
    assert torch.equal(outputs, functional.conv2d(numbers(*inputs), numbers(*weight), **kind))
    with unfolded_convolutions():
        functional.conv1d(numbers(1, 2, 3), numbers(1, 2, 3))


@pytest.mark.parametrize(
    "kind",
    [
        {"padding": "same", "stride": 2},
        {"padding": "other"},
        {"padding": -1},
        {"stride": 0},
        {"dilation": 9},
        {"groups": 2},
    ],
    ids=str,
)
def test_mistakes_have_torchs_message(kind):
    def message():
        with pytest.raises(RuntimeError) as error:
            functional.conv2d(numbers(2, 3, 5, 5), numbers(4, 3, 3, 3), **kind)
        return str(error.value)

    with unfolded_convolutions():
        found = message()
    assert found == message()


NETWORKS = {
    "cnn": lambda: models.cnn((1, 8, 8), 4),
    "groupnorm": lambda: nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2, padding=1, bias=False), nn.GroupNorm(2, 4), nn.Conv2d(4, 4, 1), nn.Flatten()
    ),
    "dropout": lambda: nn.Sequential(
        nn.Conv2d(1, 4, 3, padding="same", padding_mode="reflect"),
        nn.Dropout(0.3),
        nn.Conv2d(4, 4, 2, groups=2),
        nn.Dropout2d(0.3),
        nn.Flatten(),
        nn.Linear(196, 4),
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_the_batched_trainer_with_unfolded_convolutions(name):
    data = data_of((7, 23, 3), 1, 8, 8)
    model = FlatModel(made(NETWORKS[name]))
    starts = [model.vector.clone(), 0.9 * model.vector]
    plan = LocalPlan(steps=2, batch_size=5, lr=0.05)
    jobs = [Job(number % 3, number, 0, starts[number % 2], plan, "delta") for number in range(10)]
    workload = workload_of(model, **data)
    batched = VmapBackend(workload, unfold_convolutions=True)
    assert batched.name != VmapBackend(workload).name  # other last bits
    assert_alike(batched.train(jobs[:4]), LoopBackend(workload).train(jobs[:4]))
    assert_same_in_parts(batched, jobs)


def test_without_the_option_convolutions_are_torchs():
    model = FlatModel(made(NETWORKS["cnn"]))
    jobs = [
        Job(0, visit, 0, model.vector.clone(), LocalPlan(steps=1, batch_size=2, lr=0.1), "delta") for visit in (0, 1)
    ]
    workload = workload_of(model, **data_of((7,), 1, 8, 8))
    for unfold in (False, True):
        with Calls() as calls:
            VmapBackend(workload, unfold_convolutions=unfold).train(jobs)
        assert (calls.count == 0) is unfold
