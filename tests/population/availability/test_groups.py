import math

import numpy as np
import pytest
from offbeat_core.errors import OffbeatError

from offbeat.population.availability import Alternating, label_groups


@pytest.mark.parametrize(
    ("client", "seconds", "there", "away"),
    [
        (0, 0.0, 0.0, 10.0),  # group 0: [0, 10), [30, 40), …
        (0, 9.5, 9.5, 10.0),
        (0, 10.0, 30.0, 40.0),
        (1, 0.0, 20.0, 30.0),  # group 2
        (1, 30.0, 50.0, 60.0),
        (2, 0.0, 10.0, 20.0),  # group 1
        (2, 3000.0, 3010.0, 3020.0),
    ],
)
def test_groups_take_turns(client, seconds, there, away):
    turns = Alternating(3, 10.0, np.array([0, 2, 1]))
    assert turns.next_available(client, seconds) == there
    assert turns.next_offline(client, there) == away


def test_the_turn_of_a_time_is_found_where_the_quotient_is_rounded():
    turns = Alternating(2, 0.1, np.array([0, 1]))
    for k in range(2_000):
        boundary = k * 0.1
        assert turns.next_available(k % 2, boundary) == boundary
        assert turns.next_available((k + 1) % 2, boundary) == (k + 1) * 0.1


def test_turns_end_after_3000_years():
    turns = Alternating(2, 10.0, np.array([0, 1]))
    assert turns.next_offline(1, 1e11 - 1) == 1e11
    assert turns.next_available(0, 1e11 - 1) == math.inf
    assert turns.next_available(0, 1e11) == math.inf
    assert Alternating(2, 1e12, np.array([0])).next_offline(0, 5.0) == 1e11


def test_turns_that_are_too_short_are_refused():
    with pytest.raises(OffbeatError, match=r"period_seconds is 0.0, but must be finite and at least 0.001"):
        Alternating(2, 0.0, np.array([0]))


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
