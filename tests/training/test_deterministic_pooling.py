import pytest
import torch
from torch.func import grad, vmap
from torch.nn.functional import max_pool2d

from offbeat.training.deterministic_pooling import DeterministicPooling

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
    with DeterministicPooling():
        pooled = derivative(IMAGES, max_pool2d, size)
        layer = torch.nn.MaxPool2d(size)(IMAGES)
    assert torch.equal(pooled[0], expected[0])
    assert torch.equal(layer, expected[0])
    assert torch.equal(pooled[1], expected[1])


def test_the_kernel_of_torch_is_not_used():
    with DeterministicPooling():
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
    with DeterministicPooling():
        pooled = derivative(IMAGES, max_pool2d, *arguments, **options)
    assert torch.equal(pooled[0], expected[0])
    assert torch.equal(pooled[1], expected[1])
    assert "MaxPool" in type(pooled[0].grad_fn).__name__


def test_indices_are_left_to_torch():
    with DeterministicPooling():
        pooled, indices = max_pool2d(IMAGES, 2, return_indices=True)
    assert torch.equal(pooled, max_pool2d(IMAGES, 2))
    assert indices.dtype == torch.int64


def test_it_has_a_batched_form():
    def square(images):
        return max_pool2d(images, 2).square().sum()

    stacked = torch.stack([IMAGES, IMAGES.flip(3)])
    expected = torch.stack([grad(square)(images) for images in stacked])
    with DeterministicPooling():
        slopes = vmap(grad(square))(stacked)
    torch.testing.assert_close(slopes, expected)
