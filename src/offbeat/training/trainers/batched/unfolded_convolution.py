"""Convolutions as matrix products, which ``torch.func.vmap`` batches well.

With weights for each model, vmap makes a convolution with a group for each model, for which PyTorch has only slow
kernels on GPUs. Matrix products become one batched product. So ``torch.conv2d`` in the batched forward pass is
intercepted: each window of the images becomes a row of a matrix, which takes kernel-size times the images' memory.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from offbeat.training.max_pooling import Replaced, Size, pair


def unfolded_convolutions() -> AbstractContextManager[object]:
    """Return a context in which convolutions of batches of images are matrix products.

    They are equal up to rounding. Convolutions with groups are left alone, as are those of other dimensions.
    """
    return Replaced(torch.conv2d, _convolve)


class _Grid(NamedTuple):
    """The places of the windows; two numbers each, for height and width."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]

    @property
    def extents(self) -> list[int]:
        """The size of a window, with the pixels that dilation leaves out."""
        return [dilation * (size - 1) + 1 for size, dilation in zip(self.kernel, self.dilations, strict=True)]


def _convolve(
    input: Tensor,  # noqa: A002 - torch's name, which callers may use
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Tensor | None:
    """Return the convolution, or None if this case is not supported.

    Wrong arguments also give None, so that torch reports them.
    """
    if groups != 1 or input.dim() != 4 or weight.dim() != 4 or input.shape[1] != weight.shape[1]:
        return None
    grid = _Grid(pair(weight.shape[2:]), pair(stride), pair(dilation))
    before, after = _paddings(padding, grid)
    height, width = (input.shape[dim + 2] + before[dim] + after[dim] for dim in (0, 1))
    if (
        min(*grid.strides, *grid.dilations) < 1
        or min(before) < 0
        or height < grid.extents[0]
        or width < grid.extents[1]
    ):
        return None
    # Channels come last inside, so that whole pixels are copied and added, not single numbers.
    images = functional.pad(input.permute(0, 2, 3, 1), (0, 0, before[1], after[1], before[0], after[0])).contiguous()
    # A row for each window of all images, so that vmap needs one product for each model, not one for each image.
    windows: Tensor = _Windows.apply(images, grid)  # pyright: ignore[reportAssignmentType]
    weights = weight.permute(0, 2, 3, 1).flatten(1)
    outputs = functional.linear(windows.flatten(3).flatten(0, 2), weights, bias)
    # In the memory layout of a convolution's outputs, on which views and dropout depend.
    return outputs.view(*windows.shape[:3], len(weight)).permute(0, 3, 1, 2).contiguous()


def _paddings(padding: Size | str, grid: _Grid) -> tuple[Sequence[int], Sequence[int]]:
    """Return the numbers of zeros before and after the images.

    They are negative if torch has no such padding.
    """
    if padding == "same" and grid.strides == (1, 1):
        total = [extent - 1 for extent in grid.extents]
        return [both // 2 for both in total], [both - both // 2 for both in total]
    if isinstance(padding, str):
        padding = 0 if padding == "valid" else -1
    return pair(padding), pair(padding)


class _Windows(torch.autograd.Function):
    """The windows of images.

    Images ``(n, h, w, channels)`` become ``(n, height, width, *kernel, channels)``.

    ``torch.nn.functional.unfold`` starts a kernel on the GPU for each image, and the gradient of ``Tensor.unfold`` has
    no batched form.
    """

    @staticmethod
    def forward(images: Tensor, grid: _Grid) -> Tensor:
        windows = images
        for dim, extent, stride, dilation in zip((1, 2), grid.extents, grid.strides, grid.dilations, strict=True):
            windows = windows.unfold(dim, extent, stride)[..., ::dilation]
        return windows.permute(0, 1, 2, 4, 5, 3).contiguous()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.shape, ctx.grid = inputs[0].shape, inputs[1]

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Any, ...]:
        return _Images.apply(slopes[0], ctx.shape, ctx.grid), None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> tuple[Any, int]:
        images, grid = args[0].movedim(in_dims[0], 0), args[1]
        windows: Any = _Windows.apply(images.flatten(0, 1), grid)
        return windows.unflatten(0, images.shape[:2]), 0


class _Images(torch.autograd.Function):
    """The transpose of ``_Windows``: each pixel sums its values in all windows."""

    @staticmethod
    def forward(windows: Tensor, shape: torch.Size, grid: _Grid) -> Tensor:
        images = windows.new_zeros(shape)
        (height, width), (down, right), (below, beside) = windows.shape[1:3], grid.strides, grid.dilations
        for row in range(grid.kernel[0]):
            for column in range(grid.kernel[1]):
                top, left = row * below, column * beside
                pixels = images[:, top : top + height * down : down, left : left + width * right : right]
                pixels += windows[:, :, :, row, column]
        return images

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.grid = inputs[2]

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Any, ...]:
        return _Windows.apply(slopes[0], ctx.grid), None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> tuple[Any, int]:
        windows, shape, grid = args[0].movedim(in_dims[0], 0), args[1], args[2]
        images: Any = _Images.apply(windows.flatten(0, 1), torch.Size((len(windows) * shape[0], *shape[1:])), grid)
        return images.unflatten(0, windows.shape[:2]), 0
