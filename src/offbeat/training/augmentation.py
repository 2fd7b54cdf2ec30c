"""Data augmentation of the minibatches of several visits at once."""

from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np
import torch
from offbeat_core.errors import OffbeatError, setting
from offbeat_core.randomness import Purpose, words
from torch import Tensor
from torch.nn.functional import pad

from offbeat.model_inputs import Inputs
from offbeat.training.minibatches import Integers

AugmentationName = Literal["crop-and-flip"]
Augmentation = Callable[[Tensor, int, Integers, Integers, int], Tensor]

_BORDER = 4  # pixels, on each side
_POSITIONS = 2 * _BORDER + 1


def crop_and_flip(inputs: Tensor, seed: int, clients: Integers, visits: Integers, first: int) -> Tensor:
    """Return images cropped at random, half of them mirrored.

    The images are ``(V, batch, channels, height, width)``. Each is padded by 4 zeros on each side and cropped to its
    size, as is usual for small images (He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, section
    4.2). The 9 × 9 positions are equally likely, and so are the two orientations. The crop of an image depends only on
    the seed, the visit and the image's index within the visit. The V visits are those of ``clients`` after ``visits``
    earlier ones, both ``(V,)``; ``first`` is the index of a minibatch's first image.
    """
    batch, channels, height, width = inputs.shape[1:]
    draws = first + np.arange(batch)
    drawn = words(seed, Purpose.AUGMENTATION, clients[:, None], visits[:, None], draws).reshape(4, -1, 1)
    top, left, side, _ = torch.from_numpy(drawn.astype(np.int64)).to(inputs.device)
    rows = (top * _POSITIONS >> 32) + torch.arange(height, device=inputs.device)
    columns = torch.arange(width, device=inputs.device)
    columns = (left * _POSITIONS >> 32) + torch.where(side >> 31 == 1, width - 1 - columns, columns)
    # Index of each pixel in the padded image, (images, height · width); the same in all channels.
    indices = (rows[:, :, None] * (width + 2 * _BORDER) + columns[:, None, :]).flatten(1)
    bordered = pad(inputs.flatten(0, 1), (_BORDER,) * 4).flatten(2)
    return bordered.gather(2, indices[:, None].expand(-1, channels, -1)).view_as(inputs)


AUGMENTATIONS: Mapping[AugmentationName, Augmentation] = {"crop-and-flip": crop_and_flip}


def check_augmentation(name: AugmentationName | None, inputs: Inputs[Tensor]) -> None:
    """Raise ``OffbeatError`` if an augmentation cannot take the inputs ``(n, …)``."""
    if name is None:
        return
    key = setting("data.augmentation")
    if isinstance(inputs, dict):
        raise OffbeatError(f"{key} = {name!r} is for images, but the inputs are {', '.join(inputs)}: leave it out")
    if not (inputs.ndim == 4 and inputs.is_floating_point()):
        kind = str(inputs.dtype).removeprefix("torch.")
        raise OffbeatError(
            f"{key} = {name!r} is for images, floats of shape (channels, height, width), but the inputs "
            f"are {kind} of shape {tuple(inputs.shape[1:])}: leave it out"
        )
