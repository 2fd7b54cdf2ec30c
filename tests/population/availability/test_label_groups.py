import numpy as np
import pytest
from offbeat_core.errors import OffbeatError

from offbeat.population.availability import label_groups

LABELS = np.array([0, 0, 1, 1, 2, 2, 3, 3])


def test_the_most_frequent_label_decides_not_how_many_are_among_the_first():
    # Client 0 has labels 0, 1 and twice 2: more of the first two than of the third, but the third most often.
    shards = [np.array([0, 2, 4, 5]), np.array([2, 3, 6]), np.array([7])]
    assert label_groups(shards, LABELS, 4, 2).tolist() == [1, 0, 1]
    assert label_groups(shards, LABELS, 4, 3).tolist() == [0, 0, 1]


def test_of_equally_frequent_labels_the_lowest():
    shards = [np.array([7, 2]), np.array([7])]
    assert label_groups(shards, LABELS, 4, 2).tolist() == [0, 1]


@pytest.mark.parametrize("first_labels", [-1, 0, 4, 5])
def test_out_of_range(first_labels):
    with pytest.raises(OffbeatError, match=f"^first_labels is {first_labels}, but must be at least 1 and below 4, the"):
        label_groups([np.array([0]), np.array([7])], LABELS, 4, first_labels)


@pytest.mark.parametrize(("label", "whose"), [(1, "every"), (3, "no")])
def test_a_group_that_would_be_empty(label, whose):
    shards = [np.array([2 * label]), np.array([2 * label + 1])]
    with pytest.raises(
        OffbeatError, match=f"^{whose} client's most frequent label is one of the first 2, .* first_lab"
    ):
        label_groups(shards, LABELS, 4, 2)
