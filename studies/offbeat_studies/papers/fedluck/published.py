"""Data and models of FedLuck's published experiments, from its authors' code.

The code is ``Aegsteh-T/FedLuck_Euro_Par`` on GitHub.
"""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from offbeat import Dataset
from offbeat.data.builtin.images import FASHION_MNIST
from offbeat.data.catalogue import load_dataset
from offbeat.model_inputs import map_inputs

_MEAN, _DEVIATION = 0.1307, 0.3081  # MNIST's, which the code also has for Fashion-MNIST


def fashion_mnist() -> Dataset:
    """Return Fashion-MNIST in 32x32 pixels, inputs ``(n, 1, 32, 32)``.

    Four of five training images and one of ten test images are in it.

    Raises:
        MissingDataError: The files are missing and cannot be downloaded.
    """
    few = _fewer(replace(FASHION_MNIST, mean=_MEAN, deviation=_DEVIATION).load())
    train_inputs, test_inputs = (map_inputs(_enlarged, inputs) for inputs in (few.train_inputs, few.test_inputs))
    return replace(few, train_inputs=train_inputs, test_inputs=test_inputs)


def cifar10() -> Dataset:
    """Return CIFAR-10 with four of five training images and one of ten test images.

    Raises:
        MissingDataError: The files are missing and cannot be downloaded.
    """
    return _fewer(load_dataset("cifar10"))


def _fewer(whole: Dataset) -> Dataset:
    """Keep four of five training images and every tenth test image.

    The others are left out evenly. In the code clients keep a fifth of their images for tests of their own.
    """
    trains = np.arange(len(whole.train_labels)) % 5 != 4
    return replace(
        whole,
        train_inputs=map_inputs(lambda images: images[trains], whole.train_inputs),
        train_labels=whole.train_labels[trains],
        test_inputs=map_inputs(lambda images: images[::10], whole.test_inputs),
        test_labels=whole.test_labels[::10],
    )


def _enlarged(images: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return images of 32x32 pixels, ``(n, channels, 32, 32)``."""
    return nn.functional.interpolate(torch.from_numpy(images), size=(32, 32), mode="bilinear").numpy()


def cnn() -> nn.Module:
    """Return the network for Fashion-MNIST: two 5x5 convolutions, 234,090 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 32, kernel_size=5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 32, kernel_size=5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(800, 256), nn.ReLU(), nn.Linear(256, 10),
    )  # fmt: skip


def vgg11() -> nn.Module:
    """Return the network for CIFAR-10: a VGG-11 with at most 128 channels.

    Its convolutions have He initialisation (fan-out).
    """
    layers: list[nn.Module] = []
    before = 3
    for stage in ((32,), (64,), (128, 128), (128, 128), (128, 128)):
        for after in stage:
            layers += [nn.Conv2d(before, after, kernel_size=3, padding=1), nn.ReLU()]
            before = after
        layers.append(nn.MaxPool2d(2))
    for layer in layers:
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
            nn.init.zeros_(layer.get_parameter("bias"))
    layers.append(nn.Flatten())
    for _ in range(2):
        layers += [nn.Linear(128, 128), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(128, 10))
