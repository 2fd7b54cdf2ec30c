"""Standardisation of images."""

import numpy as np
from numpy.typing import ArrayLike, NDArray


def standardise(images: NDArray[np.uint8], mean: ArrayLike, deviation: ArrayLike) -> NDArray[np.float32]:
    """Return images scaled to [0, 1], then standardised channel by channel.

    The images are ``(n, channels, height, width)``; ``mean`` and ``deviation`` of the scaled pixels ``(channels,)``.
    """
    # In place, to save memory: CIFAR-10's training images take 614 MB.
    inputs = images.astype(np.float32)
    inputs /= np.float32(255)
    inputs -= np.asarray(mean, np.float32)[:, np.newaxis, np.newaxis]
    inputs /= np.asarray(deviation, np.float32)[:, np.newaxis, np.newaxis]
    return inputs
