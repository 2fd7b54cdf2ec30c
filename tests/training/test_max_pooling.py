import dataclasses
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.func import grad, vmap
from torch.nn import functional
from torch.nn.functional import max_pool2d
from torch.utils._python_dispatch import TorchDispatchMode

from offbeat.algorithms import LocalPlan
from offbeat.training import max_pooling, models
from offbeat.training.accelerator import Accelerator
from offbeat.training.flat_model import FlatModel
from offbeat.training.max_pooling import deterministic_pooling, fast_max_pooling
from offbeat.training.trainers.backend import Job
from offbeat.training.trainers.loop import LoopBackend
from tests.training.conftest import assert_same, data_of, made
from tests.workloads import workload_of

POOLING = fast_max_pooling(nn.MaxPool2d(2))
ON_GPU = deterministic_pooling(Accelerator(torch.device("cuda")))

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch has no oneDNN")


class Seen(TorchDispatchMode):
    """Notes whether oneDNN has pooled."""

    def __init__(self):
        super().__init__()
        self.fast = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.fast |= func is torch.ops.aten.mkldnn_max_pool2d.default
        return func(*args, **kwargs or {})


def pooled(values, *args, mode, **kwargs):
    """Return outputs and slopes, and whether oneDNN has pooled."""
    values = values.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    with Seen() as seen:
        if mode is None:
            outputs = functional.max_pool2d(values, *args, **kwargs)
        else:
            with mode:
                outputs = functional.max_pool2d(values, *args, **kwargs)
    slopes = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(1))
    outputs.backward(slopes)
    return outputs, values.grad, seen.fast


def assert_same_bits(values, *args, fast=True, **kwargs):
    outputs, slopes, was_fast = pooled(values, *args, mode=POOLING, **kwargs)
    expected, expected_slopes, _ = pooled(values, *args, mode=None, **kwargs)
    assert was_fast is fast
    for one, other in ((outputs, expected), (slopes, expected_slopes)):
        assert one.stride() == other.stride()
        assert torch.equal(one.view(torch.int32), other.view(torch.int32))


@pytest.fixture
def values():
    return few_values()


def few_values():
    """Few values, so that most windows have several largest ones, and zeros of both signs."""
    random = torch.Generator().manual_seed(0)
    values = torch.randint(-2, 3, (3, 5, 8, 9), generator=random).float()
    return values * torch.randint(-1, 2, values.shape, generator=random)


@given(
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    gaps=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    padded=st.tuples(st.booleans(), st.booleans()),
    ceil_mode=st.booleans(),
)
def test_bits_are_those_of_pytorch(kernel, gaps, padded, ceil_mode):
    stride = tuple(size + gap for size, gap in zip(kernel, gaps, strict=True))
    padding = tuple(int(is_padded and size > 1) for size, is_padded in zip(kernel, padded, strict=True))
    assert_same_bits(few_values(), kernel, stride, padding, ceil_mode=ceil_mode)


@pytest.mark.parametrize(("kernel_size", "stride"), [(3, 2), (2, 1), ((2, 3), (2, 1))])
def test_overlapping_windows_are_left_alone(values, kernel_size, stride):
    assert_same_bits(values, kernel_size, stride, fast=False)


def test_a_layer_of_real_numbers():
    values = torch.randn(20, 32, 16, 16, generator=torch.Generator().manual_seed(2)).relu()
    assert_same_bits(values, 2)


@pytest.mark.parametrize("special", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_left_alone(values, special):
    values[1, 2, 3, 4] = special
    values[2, :, :4] = special
    assert_same_bits(values, 2, fast=False)


def test_other_inputs_are_left_alone(values):
    assert_same_bits(values[0], 2, fast=False)
    assert_same_bits(values.to(memory_format=torch.channels_last), 2, fast=False)
    with POOLING:
        assert functional.max_pool2d(values.double(), 2).dtype == torch.float64
        outputs, indices = functional.max_pool2d(values, 2, return_indices=True)
    assert outputs.shape == indices.shape


@pytest.mark.parametrize(("kernel_size", "padding"), [(1, 1), (2, 2), ((3, 1), 1), (20, 0)])
def test_mistakes_have_the_same_message(values, kernel_size, padding):
    def message():
        with pytest.raises(RuntimeError) as error:
            functional.max_pool2d(values, kernel_size, padding=padding)
        return str(error.value)

    with POOLING:
        found = message()
    assert found == message()


def test_the_users_own_vmap_works(values):
    with POOLING:
        outputs = torch.vmap(lambda image: functional.max_pool2d(image, 2))(values[None])
    assert torch.equal(outputs[0], functional.max_pool2d(values, 2))


@pytest.mark.parametrize(
    ("make", "fast"),
    [
        (lambda: nn.Sequential(nn.Sequential(nn.Conv2d(1, 1, 1))), True),
        (lambda: nn.MaxPool2d(2), True),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(2, 2), nn.Conv1d(1, 1, 1)), False),
    ],
)
def test_only_modules_for_images_are_intercepted(values, make, fast):
    assert pooled(values, 2, mode=fast_max_pooling(made(make)))[2] is fast


def test_training_and_evaluation_keep_their_bits(monkeypatch):
    data = data_of((6, 9), 3, 8, 8)
    model = FlatModel(made(lambda: models.cnn((3, 8, 8), 4)))
    plan = LocalPlan(steps=3, batch_size=4, lr=0.1)
    jobs = [Job(client, 0, 0, model.vector.clone(), plan, "params") for client in range(2)]

    def run():
        workload = workload_of(model, **data)
        with Seen() as seen:
            results = LoopBackend(workload).train(jobs)
        trained, seen.fast = seen.fast, False
        with seen:
            tested = dataclasses.replace(workload, test=workload.train).evaluator()(jobs[0].start)
        return results, tested, trained, seen.fast

    results, tested, trained_fast, tested_fast = run()
    assert trained_fast
    assert tested_fast
    monkeypatch.setattr(max_pooling, "_pool_by_onednn", lambda *args, **kwargs: None)
    expected, expected_test, trained_fast, tested_fast = run()
    assert not trained_fast
    assert not tested_fast
    assert_same(results, expected)
    assert tested == expected_test


GENERATOR = torch.Generator().manual_seed(7)
# Small whole numbers, so that windows have several maxima.
IMAGES = torch.randint(0, 3, (4, 2, 6, 12), generator=GENERATOR).float()


def derivative(images, pool, *arguments, **options):
    images = images.clone().requires_grad_()
    pooled = pool(images, *arguments, **options)
    (pooled * torch.arange(1.0, 1 + pooled.numel()).view_as(pooled)).sum().backward()
    return pooled, images.grad


@pytest.mark.parametrize("size", [2, 3, (3, 2), (1, 4), (6, 12)])
def test_values_and_gradients_are_those_of_torch(size):
    expected = derivative(IMAGES, max_pool2d, size)
    with ON_GPU:
        pooled = derivative(IMAGES, max_pool2d, size)
        layer = torch.nn.MaxPool2d(size)(IMAGES)
    assert torch.equal(pooled[0], expected[0])
    assert torch.equal(layer, expected[0])
    assert torch.equal(pooled[1], expected[1])


def test_the_kernel_of_torch_is_not_used():
    with ON_GPU:
        pooled = max_pool2d(IMAGES.clone().requires_grad_(), 2)
    assert "MaxPool" not in type(pooled.grad_fn).__name__


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((4,), {}),
        ((2, 1), {}),
        ((2,), {"padding": 1}),
        ((2,), {"dilation": 2, "stride": 2}),
        ((5,), {"ceil_mode": True}),
    ],
)
def test_other_windows_are_left_to_torch(arguments, options):
    expected = derivative(IMAGES, max_pool2d, *arguments, **options)
    with ON_GPU:
        pooled = derivative(IMAGES, max_pool2d, *arguments, **options)
    assert torch.equal(pooled[0], expected[0])
    assert torch.equal(pooled[1], expected[1])
    assert "MaxPool" in type(pooled[0].grad_fn).__name__


def test_indices_are_left_to_torch():
    with ON_GPU:
        pooled, indices = max_pool2d(IMAGES, 2, return_indices=True)
    assert torch.equal(pooled, max_pool2d(IMAGES, 2))
    assert indices.dtype == torch.int64


def test_it_has_a_batched_form():
    def square(images):
        return max_pool2d(images, 2).square().sum()

    stacked = torch.stack([IMAGES, IMAGES.flip(3)])
    expected = torch.stack([grad(square)(images) for images in stacked])
    with ON_GPU:
        slopes = vmap(grad(square))(stacked)
    torch.testing.assert_close(slopes, expected)
