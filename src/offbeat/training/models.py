"""The built-in models."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from math import prod

import torch
from offbeat_core.errors import OffbeatError
from offbeat_core.randomness import Purpose, integer
from torch import Tensor, nn


def softmax_regression(input_shape: Sequence[int], classes: int) -> nn.Module:
    """Return multinomial logistic regression: one linear layer that starts at zero."""
    layer = nn.Linear(prod(input_shape), classes)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return nn.Sequential(nn.Flatten(), layer)


def mlp(input_shape: Sequence[int], classes: int, hidden: Sequence[int]) -> nn.Module:
    """Return a multi-layer perceptron with ReLU and hidden layers of these widths."""
    widths = [prod(input_shape), *hidden]
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], classes))


def cnn(input_shape: Sequence[int], classes: int) -> nn.Module:
    """Return the network that Avdyukhin and Kasiviswanathan train on CIFAR-10.

    "Federated Learning under Arbitrary Communication Patterns" (ICML 2021), appendix C: three 3x3 convolutions with
    padding 1 and 32, 64 and 64 channels, each with ReLU, 2x2 max-pooling after the first two; 64 units with ReLU; one
    output per class. With 32x32 colour images and ten classes it has 319,178 parameters. The paper's softmax is part of
    the loss here. The paper does not specify the initial weights; they are PyTorch's.

    Raises:
        OffbeatError: An input is not ``(channels, height, width)`` with at least 4x4 pixels.
    """
    channels, height, width = _image_shape(input_shape, "cnn", smallest=4)
    return nn.Sequential(
        nn.Conv2d(channels, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 64, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * (height // 4) * (width // 4), 64),
        nn.ReLU(),
        nn.Linear(64, classes),
    )


def resnet18(input_shape: Sequence[int], classes: int, groups: int = 2) -> nn.Module:
    """Return ResNet-18 for small images, with GroupNorm in place of BatchNorm.

    He et al., "Deep Residual Learning" (CVPR 2016), as usual for CIFAR with a 3x3 convolution of stride 1 and no
    max-pooling at the beginning. Hsieh et al., "The Non-IID Data Quagmire" (ICML 2020), found that BatchNorm fails on
    clients with different labels and GroupNorm does not. Initial weights are PyTorch's.

    Args:
        input_shape: ``(channels, height, width)``, at least 8x8 pixels: three stages halve the image.
        classes: Number of outputs.
        groups: Groups of channels per GroupNorm layer. Two, as in Reddi et al., "Adaptive Federated Optimization"
            (ICLR 2021); Wu and He, who introduced GroupNorm, have 32.

    Raises:
        OffbeatError: The input shape does not fit, or ``groups`` does not divide 64.
    """
    channels, _, _ = _image_shape(input_shape, "resnet18", smallest=8)
    if groups < 1 or 64 % groups:
        raise OffbeatError(f"resnet18 has 64 channels or multiples of it: groups must divide 64, got {groups}")
    layers: list[nn.Module] = [
        nn.Conv2d(channels, 64, kernel_size=3, padding=1, bias=False),
        nn.GroupNorm(groups, 64),
        nn.ReLU(),
    ]
    for before, after, stride in [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)]:
        layers += [_ResidualBlock(before, after, stride, groups), _ResidualBlock(after, after, 1, groups)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


class _ResidualBlock(nn.Module):
    """Two 3x3 convolutions, to whose output the input is added."""

    def __init__(self, before: int, after: int, stride: int, groups: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(before, after, kernel_size=3, stride=stride, padding=1, bias=False),
            nn.GroupNorm(groups, after),
            nn.ReLU(),
            nn.Conv2d(after, after, kernel_size=3, padding=1, bias=False),
            nn.GroupNorm(groups, after),
        )
        self.shortcut: nn.Module = nn.Identity()
        if before != after:
            self.shortcut = nn.Sequential(
                nn.Conv2d(before, after, kernel_size=1, stride=stride, bias=False), nn.GroupNorm(groups, after)
            )

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.relu(self.residual(inputs) + self.shortcut(inputs))


def lstm(tokens: int, classes: int, embedding: int = 25, hidden: int = 16, layers: int = 2) -> nn.Module:
    """Return an LSTM that classifies sequences by its output at the last token.

    The defaults are the sizes of Yan et al., "Distributed Non-Convex Optimization with Sublinear Speedup under
    Intermittent Client Availability" (2020), section 6: two layers of 16 units and embeddings of 25 dimensions. Theirs
    are pretrained GloVe embeddings; here they start from PyTorch's random values and are trained.

    Inputs are int64 ``(n, length)``; the token 0 is padding, at the end of a sequence.

    Args:
        tokens: Number of tokens, padding included.
        classes: Number of outputs.
        embedding: Dimensions of the embeddings.
        hidden: Units per layer.
        layers: Number of LSTM layers.

    Raises:
        OffbeatError: A number is below 1.
    """
    for name, value in {"tokens": tokens, "embedding": embedding, "hidden": hidden, "layers": layers}.items():
        if value < 1:
            raise OffbeatError(f"lstm: {name} must be at least 1, got {value}")
    return _LstmClassifier(tokens, classes, embedding, hidden, layers)


class _LstmClassifier(nn.Module):
    def __init__(self, tokens: int, classes: int, embedding: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, embedding, padding_idx=0)
        self.lstm = nn.LSTM(embedding, hidden, num_layers=layers, batch_first=True)
        self.output = nn.Linear(hidden, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        states, _ = self.lstm(self.embedding(inputs))
        # An LSTM looks only back, so padding after a sequence does not change the states before it.
        last = (torch.arange(inputs.shape[1], device=inputs.device) * (inputs != 0)).amax(dim=1)
        return self.output(states[torch.arange(len(inputs), device=inputs.device), last])


def _image_shape(input_shape: Sequence[int], model: str, smallest: int) -> tuple[int, int, int]:
    shape = tuple(input_shape)
    if len(shape) != 3 or shape[0] < 1 or min(shape[1:]) < smallest:
        raise OffbeatError(
            f"{model} takes images of shape (channels, height, width) with at least {smallest}x{smallest} pixels, "
            f"but the inputs have shape {shape}"
        )
    return shape[0], shape[1], shape[2]


@contextmanager
def initial_randomness(seed: int) -> Generator[None]:
    """Initialise modules that are built inside from the run's seed.

    Torch's own generator does not change.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(integer(seed, Purpose.INITIAL_MODEL))
        yield
