from typing import NamedTuple

import torch
from torch import Tensor

from offbeat.training.output_trees import copied, is_tree, joined, leaves

PART = torch.arange(6.0).view(3, 2)


class Pair(NamedTuple):
    first: Tensor
    second: list[Tensor]


def test_trees_are_tensors_with_a_row_for_each_example():
    assert is_tree(PART, 3)
    assert is_tree({"a": PART, "b": (PART, [PART])}, 3)
    assert not is_tree((PART, torch.tensor(1.0)), 3)  # such as a loss in the outputs
    assert not is_tree((PART, "text"), 3)
    assert not is_tree(PART, 2)


def test_batches_are_joined_leaf_by_leaf():
    whole = joined([Pair(PART, [PART]), Pair(PART + 1, [PART + 2])])
    assert isinstance(whole, Pair)
    assert torch.equal(whole.first, torch.cat([PART, PART + 1]))
    assert torch.equal(whole.second[0], torch.cat([PART, PART + 2]))


def test_copies_do_not_share_tensors_and_keep_other_objects():
    other = object()
    made = copied({"a": PART, "b": (PART, other)})
    first, second, kept = leaves(made)
    assert first.data_ptr() != PART.data_ptr() != second.data_ptr()
    assert torch.equal(first, PART)
    assert kept is other
