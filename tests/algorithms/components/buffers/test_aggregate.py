import math

import pytest

from offbeat.algorithms import Update
from offbeat.algorithms.components import ClosedBuffer, Entry, NotFiniteError, RunFacts, Sum, Weight
from offbeat.algorithms.components.buffers.aggregate import check_finite


def started(*tallies, length=2):
    buffer = Sum(*tallies)
    buffer.start(RunFacts(length, clients=9))
    return buffer


def test_a_sum_by_hand(upload):
    buffer = started()
    buffer.add(upload(0, 5, 1, 2), 2.0)
    buffer.add(upload(1, 3, -2, 4), 0.5)
    assert buffer.count == 2
    closed = buffer.release(7)
    assert (closed.version, closed.count, closed.weight, closed.oldest) == (7, 2, 2.5, 3)
    assert (closed.tallies, closed.sealed, list(closed.entries)) == ({}, False, [])
    assert closed.total().tolist() == [1, 6]


def test_a_release_begins_a_new_sum_and_leaves_the_old_one_alone(upload):
    buffer = started()
    buffer.add(upload(0, 0, 1, 2), 1.0)
    first = buffer.release(0)
    buffer.add(upload(1, 0, 10, 20), 3.0)
    second = buffer.release(1)
    assert first.total().tolist() == [1, 2]
    assert second.total().tolist() == [30, 60]
    assert (buffer.count, second.count, second.weight) == (0, 1, 3.0)
    assert buffer.release(2).total().tolist() == [0, 0]


def test_tallies_are_summed_beside_the_vectors(upload):
    buffer = started("examples", "steps")
    buffer.add(upload(0, 0, 1, 1), Weight(2.0, examples=3, steps=1))
    buffer.add(upload(1, 0, 1, 1), Weight(1.0, examples=4))
    closed = buffer.release(0)
    assert closed.tallies == {"examples": 7, "steps": 1}
    assert (closed.weight, closed.total().tolist()) == (3.0, [3, 3])
    buffer.add(upload(1, 0, 1, 1), Weight(1.0, examples=5))
    assert closed.tallies == {"examples": 7, "steps": 1}
    assert buffer.release(1).tallies == {"examples": 5, "steps": 0}


def test_start_empties_the_buffer(upload):
    buffer = started("examples")
    buffer.add(upload(0, 0, 1, 2), Weight(2.0, examples=3))
    buffer.start(RunFacts(1, 4))
    assert buffer.count == 0
    closed = buffer.release(0)
    assert (closed.total().tolist(), closed.weight, closed.tallies) == ([0], 0, {"examples": 0})


def test_the_total_is_computed_once_and_divided_once_in_place(vector):
    made = []

    def make():
        made.append(vector(3, 4))
        return made[-1]

    closed = ClosedBuffer(0, make, count=2)
    total = closed.total()
    assert closed.total() is total is made[0]
    assert closed.mean(2).tolist() == [1.5, 2.0]
    assert closed.mean(2).tolist() == [1.5, 2.0]
    assert closed.mean(2) is total
    assert len(made) == 1


def test_a_total_that_failed_is_computed_again_and_divided_once(vector):
    broken = [True]

    def make():
        if broken:
            raise RuntimeError("no power")
        return vector(3, 4)

    closed = ClosedBuffer(0, make, count=2)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no power"):
            closed.mean(2)
    broken.clear()
    assert closed.mean(2).tolist() == [1.5, 2.0]


def test_a_mean_is_not_divided(vector):
    closed = ClosedBuffer(0, lambda: vector(3, 4), count=2, is_mean=True)
    assert closed.mean(2).tolist() == [3, 4]


@pytest.mark.parametrize("entry", [math.nan, math.inf, -math.inf, 2e19, -3e38])
def test_a_sum_that_is_not_finite_is_refused(entry, vector):
    closed = ClosedBuffer(0, lambda: vector(1, entry), count=1)
    for read in (closed.total, lambda: closed.mean(2)):
        with pytest.raises(NotFiniteError, match="the sum of the updates is not finite, or too large for 32 bits"):
            read()


@pytest.mark.parametrize("entry", [0.0, 1e19, -1e19, 1e-45])
def test_what_can_be_squared_in_32_bits_is_finite(entry, vector):
    assert check_finite(vector(entry, 0), "the model") is None


def test_a_plain_buffer_has_nothing_to_reveal(upload, vector):
    buffer = started()
    with pytest.raises(ValueError, match="this buffer is not sealed: it has nothing to reveal"):
        buffer.reveal(buffer.release(0), vector(1, 2))


def test_an_entry_trains_at_most_once(deferred, vector):
    promise = deferred(vector(1, 2))
    entry = Entry(Update(0, 0, promise, 1, 1, 1.0, base=vector(3, 4)), 2.0, 2)
    assert promise.resolved == 0
    assert [entry.vector.tolist() for _ in range(2)] == [[1, 2]] * 2
    assert entry.base.tolist() == [3, 4]
    assert promise.resolved == 1
