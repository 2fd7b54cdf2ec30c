"""Data augmentation: training inputs that are changed at random, for a minibatch of many visits at once."""

from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from offbeat.errors import OffbeatError
from offbeat.randomness import Purpose, words
from offbeat.training.minibatches import Integers

AugmentationName = Literal["crop-and-flip"]
Augmentation = Callable[[Tensor, int, Integers, Integers, int], Tensor]

_BORDER = 4  # pixels, on each side
_PLACES = 2 * _BORDER + 1


def crop_and_flip(inputs: Tensor, seed: int, clients: Integers, visits: Integers, step: int) -> Tensor:
    """Return images with 4 pixels of zeros on each side, cropped to their size at random and half of them mirrored.

    The usual augmentation of small images (He et al., "Deep Residual Learning for Image Recognition", CVPR 2016,
    section 4.2). Each of the 9 × 9 places is as likely, and so is each side. Values are only copied, and what becomes
    of an image depends on nothing but the seed, the visit and the image's number within it.

    Args:
        inputs: A minibatch for each of V visits, ``(V, batch, channels, height, width)``.
        seed: The run's seed.
        clients: ``(V,)``, whose visit it is.
        visits: ``(V,)``, how many times the client had been given work before.
        step: Which step of their visits this is, from 0.

    Returns:
        A tensor of the same shape.
    """
    batch, channels, height, width = inputs.shape[1:]
    draws = step * batch + np.arange(batch)
    drawn = words(seed, Purpose.AUGMENTATION, clients[:, None], visits[:, None], draws).reshape(4, -1, 1)
    top, left, side, _ = torch.from_numpy(drawn.astype(np.int64))
    rows = (top * _PLACES >> 32) + torch.arange(height)
    columns = torch.arange(width)
    columns = (left * _PLACES >> 32) + torch.where(side >> 31 == 1, width - 1 - columns, columns)
    # Where in the image with its border each pixel comes from, (images, height · width); the same in all channels.
    places = (rows[:, :, None] * (width + 2 * _BORDER) + columns[:, None, :]).flatten(1)
    bordered = pad(inputs.flatten(0, 1), (_BORDER,) * 4).flatten(2)
    return bordered.gather(2, places[:, None].expand(-1, channels, -1)).view_as(inputs)


AUGMENTATIONS: Mapping[AugmentationName, Augmentation] = {"crop-and-flip": crop_and_flip}


def check_augmentation(name: AugmentationName | None, inputs: Tensor) -> None:
    """Check that the inputs ``(n, …)`` are what an augmentation is for.

    Raises:
        OffbeatError: They are no images.
    """
    if name is not None and not (inputs.ndim == 4 and inputs.is_floating_point()):
        kind = str(inputs.dtype).removeprefix("torch.")
        raise OffbeatError(
            f"data.augmentation = {name!r} is for images, floats of shape (channels, height, width), but the inputs "
            f"are {kind} of shape {tuple(inputs.shape[1:])}: leave it out"
        )
