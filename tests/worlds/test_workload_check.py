import functools

import pytest
import torch
from offbeat_core.errors import OffbeatError
from torch import nn
from torch.nn.functional import cross_entropy

from offbeat.training.objectives import bce
from offbeat.worlds import workload_check
from offbeat.worlds.workload_check import number_of_targets

MASKS = torch.tensor([[[0, 1], [2, 255]], [[1, 1], [-100, 4]]])


@pytest.mark.parametrize(
    ("loss", "labels", "number"),
    [
        (cross_entropy, torch.tensor([0, 3, -100]), 4),
        (nn.CrossEntropyLoss(ignore_index=255), MASKS[:1], 3),
        (functools.partial(cross_entropy, ignore_index=4), torch.tensor([[4, 0], [1, 2]]), 3),
        (nn.NLLLoss(), torch.tensor([[5], [1]]), 6),
        (cross_entropy, torch.rand(3, 2), None),
        (bce, torch.tensor([[0, 1]]), None),
        (lambda outputs, labels: outputs.sum(), torch.tensor([-1, 1]), None),
    ],
)
def test_the_largest_target(loss, labels, number):
    assert number_of_targets(loss, {"train": labels, "test": labels[:1]}) == number


@pytest.mark.parametrize("block", [1, 2**20])
def test_a_target_out_of_range_is_named(block, monkeypatch):
    monkeypatch.setattr(workload_check, "_BLOCK", block)
    with pytest.raises(OffbeatError) as caught:
        number_of_targets(nn.CrossEntropyLoss(ignore_index=255), {"train": MASKS[:1], "test": MASKS})
    assert str(caught.value) == (
        "labels out of range: test example 1 has -100, but the loss takes classes from 0, and ignores 255"
    )


def test_a_part_without_targets_is_named():
    with pytest.raises(OffbeatError, match=r"^the test set has no target: its labels are all -100, which the l"):
        number_of_targets(cross_entropy, {"train": torch.tensor([0, -100]), "test": torch.tensor([-100])})
