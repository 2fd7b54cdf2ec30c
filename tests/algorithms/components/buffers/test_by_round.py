import pytest
import torch

from offbeat.algorithms import Update
from offbeat.algorithms.components import ByRound, RunFacts, Weight


def started():
    buffer = ByRound()
    buffer.start(RunFacts(2, 9))
    return buffer


def test_an_update_counts_in_its_round(upload):
    buffer = started()
    buffer.add(upload(0, 0, 1, 2), Weight(2.0, round=1))
    buffer.add(upload(1, 0, 4, 4), Weight(0.5, round=3))
    buffer.add(upload(2, 0, 1, 1), Weight(1.0, round=1))
    assert buffer.count == 3
    released = [buffer.release(version) for version in range(3)]
    assert [closed.version for closed in released] == [0, 1, 2]
    assert [closed.count for closed in released] == [2, 0, 1]
    assert [closed.total().tolist() for closed in released] == [[3, 5], [0, 0], [2, 2]]
    assert buffer.count == 0


def test_a_promise_waits_until_the_sum_of_its_round_is_read(deferred, vector):
    buffer, promise = started(), deferred(vector(1, 2))
    assert (buffer.linear, buffer.releases) == (True, 1)
    buffer.add(Update(0, 0, promise, 1, 1, 1.0), Weight(3.0, round=1))
    closed = buffer.release(0)
    assert promise.resolved == 0
    assert closed.total().tolist() == [3, 6]
    assert promise.resolved == 1


def test_a_vector_of_the_wrong_shape_changes_nothing(same_state):
    buffer = started()
    before = buffer.state_dict()
    with pytest.raises(ValueError, match="shape"):
        buffer.add(Update(0, 0, torch.zeros(3), 1, 1, 1.0), Weight(1.0, round=1))
    assert same_state(buffer.state_dict(), before)
