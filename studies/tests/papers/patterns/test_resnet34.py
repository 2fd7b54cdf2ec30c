from pathlib import Path

import torch
from torch import nn

from offbeat.config.import_path import canonical, load_object

FILE = Path(__file__).parents[3] / "offbeat_studies" / "papers" / "patterns" / "resnet34.py"
resnet34 = load_object(canonical(f"{FILE}:resnet34", Path()))


def test_it_is_34_layers_deep_and_normalises_nothing():
    layers = list(resnet34().modules())
    convolutions = [layer for layer in layers if isinstance(layer, nn.Conv2d)]
    # He et al., table 1: one convolution, 2 · (3 + 4 + 6 + 3) more, one linear layer. Shortcuts are not counted.
    deep = [layer for layer in convolutions if layer.kernel_size == (3, 3)]
    assert len(deep) + sum(isinstance(layer, nn.Linear) for layer in layers) == 34
    assert [layer.out_channels for layer in deep[1:]] == [64] * 6 + [128] * 8 + [256] * 12 + [512] * 6
    assert all("Norm" not in type(layer).__name__ for layer in layers)
    # Where channels double, pixels halve, on both ways.
    assert [layer.out_channels for layer in convolutions if layer.stride == (2, 2)] == [128, 128, 256, 256, 512, 512]


def test_a_block_adds_its_input():
    block = next(layer for layer in resnet34(width=2).modules() if type(layer).__name__ == "_Block")
    for parameter in block.residual.parameters():
        nn.init.zeros_(parameter)
    inputs = torch.randn(3, 2, 8, 8)
    assert torch.equal(block(inputs), inputs.relu())
    nn.init.ones_(block.residual[2].bias)
    assert torch.equal(block(inputs), (inputs + 1).relu())


def test_a_block_begins_as_its_shortcut():
    for block in (layer for layer in resnet34(width=2).modules() if type(layer).__name__ == "_Block"):
        inputs = torch.randn(3, block.residual[0].in_channels, 8, 8)
        with torch.no_grad():
            block.residual[2].bias.zero_()
            assert torch.equal(block(inputs), block.shortcut(inputs).relu())
            assert block.residual[0].weight.any()


def test_a_narrow_one_takes_pictures():
    assert resnet34(width=2, classes=7)(torch.randn(5, 3, 32, 32)).shape == (5, 7)
