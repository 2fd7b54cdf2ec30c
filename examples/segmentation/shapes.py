"""Pictures of squares and discs, a small U-Net that finds them, and its loss."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from offbeat import Dataset

SIZE, CLASSES = 16, 3  # background, square, disc
IGNORED = 255  # the label of pixels on a border, which nobody has decided

loss = nn.CrossEntropyLoss(weight=torch.tensor([0.5, 1.0, 1.0]), ignore_index=IGNORED)


def data(users: int, train_examples: int = 1200, test_examples: int = 200) -> Dataset:
    """Return pictures ``(n, 1, 16, 16)`` with a class for each pixel.

    Half of the users have more squares, the others more discs.
    """
    draw = np.random.default_rng(0)
    owner = draw.integers(users, size=train_examples)
    owner[:users] = np.arange(users)
    train, train_labels = pictures(draw, np.where(owner % 2, 0.8, 0.2))
    test, test_labels = pictures(draw, np.full(test_examples, 0.5))
    return Dataset(
        name="shapes",
        train_inputs=train,
        train_labels=train_labels,
        test_inputs=test,
        test_labels=test_labels,
        classes=None,  # a class for each pixel, not one for a picture
        users=owner,
    )


def pictures(draw: np.random.Generator, discs: NDArray[np.float64]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return noisy pictures of a shape each, and the classes of their pixels.

    ``discs`` are the probabilities of a disc.
    """
    number = len(discs)
    rows, columns = np.mgrid[:SIZE, :SIZE]
    middle = draw.uniform(4, SIZE - 5, (2, number, 1, 1))
    radius = draw.uniform(2.5, 4.5, (number, 1, 1))
    down, right = np.abs(rows - middle[0]), np.abs(columns - middle[1])
    is_disc = (draw.random(number) < discs)[:, None, None]
    distance = np.where(is_disc, np.hypot(down, right), np.maximum(down, right)) - radius
    labels = np.where(distance < 0, 1 + is_disc, 0)
    values = (distance < 0) + draw.normal(0, 0.5, distance.shape)
    return values[:, None].astype(np.float32), np.where(np.abs(distance) < 0.3, IGNORED, labels).astype(np.int64)


class UNet(nn.Module):
    """Two levels with a connection between them."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.fine = _block(1, width)
        self.coarse = nn.Sequential(nn.MaxPool2d(2), _block(width, 2 * width), _block(2 * width, 2 * width))
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.head = nn.Sequential(_block(2 * width, width), nn.Conv2d(width, CLASSES, 1))

    def forward(self, pictures: Tensor) -> Tensor:
        """Return logits ``(n, 3, 16, 16)``."""
        fine = self.fine(pictures)
        return self.head(torch.cat([fine, self.up(self.coarse(fine))], dim=1))


def _block(before: int, after: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(2, after), nn.ReLU())
