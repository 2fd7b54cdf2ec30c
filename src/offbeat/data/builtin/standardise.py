"""Pictures of bytes as a network's inputs."""

import numpy as np
from numpy.typing import ArrayLike, NDArray


def standardise(pictures: NDArray[np.uint8], mean: ArrayLike, deviation: ArrayLike) -> NDArray[np.float32]:
    """Return pictures scaled to [0, 1], then standardised channel by channel.

    Args:
        pictures: ``(n, channels, height, width)``.
        mean: The mean of the scaled pixels of each channel, ``(channels,)``.
        deviation: Their standard deviation, ``(channels,)``.

    Returns:
        Array of the pictures' shape.
    """
    # In place, because this is where the most memory goes: 614 MB for CIFAR-10's training pictures.
    inputs = pictures.astype(np.float32)
    inputs /= np.float32(255)
    inputs -= np.asarray(mean, np.float32)[:, np.newaxis, np.newaxis]
    inputs /= np.asarray(deviation, np.float32)[:, np.newaxis, np.newaxis]
    return inputs
