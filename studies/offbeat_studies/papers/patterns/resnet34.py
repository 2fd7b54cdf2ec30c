"""ResNet-34 without normalisation.

It is the model of Figure 2 of "Federated learning under arbitrary communication patterns".
"""

import torch
from torch import Tensor, nn


def resnet34(width: int = 64, classes: int = 10) -> nn.Module:
    """Return ResNet-34 for small pictures, without batch normalisation.

    He et al., "Deep residual learning for image recognition" (CVPR 2016): 3, 4, 6 and 3 blocks of two 3x3 convolutions,
    twice as many channels and half as many pixels from one group of blocks to the next; as usual for 32x32 pixels, with
    a 3x3 convolution of stride 1 and no max-pooling at the beginning. Convolutions have biases, since no normalisation
    takes them away. A block begins as its shortcut, since its last convolution is zero; the other convolutions begin as
    He et al. have them. Without that, or normalisation, so deep a network hardly learns (Zhang et al., "Fixup
    initialization", ICLR 2019).

    Args:
        width: Channels of the first blocks. 64 is ResNet-34; less is as deep, but faster.
        classes: How many outputs.
    """
    layers: list[nn.Module] = [nn.Conv2d(3, width, kernel_size=3, padding=1), nn.ReLU()]
    before = width
    for group, blocks in enumerate((3, 4, 6, 3)):
        after = width * 2**group
        for block in range(blocks):
            layers.append(_Block(before, after, stride=2 if group and not block else 1))
            before = after
    network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    for layer in network.modules():
        if isinstance(layer, _Block):
            nn.init.zeros_(layer.residual.get_parameter("2.weight"))
    return network


class _Block(nn.Module):
    """Two 3x3 convolutions, and the input added to what comes out of them."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(before, after, kernel_size=3, stride=stride, padding=1),
            nn.ReLU(),
            nn.Conv2d(after, after, kernel_size=3, padding=1),
        )
        same = before == after and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(before, after, kernel_size=1, stride=stride)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the block's outputs.

        Inputs are ``(n, before, height, width)``, outputs ``(n, after, height / stride, width / stride)``.
        """
        return torch.relu(self.residual(inputs) + self.shortcut(inputs))
