import torch

from offbeat.algorithms import Update
from offbeat.algorithms.components import ArrivalGroups, ByGroup, ByRound, RunFacts, Weight


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


def grouped():
    schedule = ArrivalGroups((1, 2), 1.0, 1.0)
    buffer = ByGroup(schedule)
    for part in (schedule, buffer):
        part.start(RunFacts(1, 4))
    return schedule, buffer


def add(buffer, value, group):
    update = Update(0, 0, torch.tensor([float(value)]), examples=1, steps=1, normaliser=1.0)
    buffer.add(update, Weight(0.5, round=group))


def test_a_release_is_of_one_group_and_of_those_without():
    schedule, buffer = grouped()
    for value, group in ((1, 7), (2, None), (4, 8), (8, 7)):
        add(buffer, value, group)
    schedule.closing = 7
    closed = buffer.release(3)
    assert (closed.count, closed.version, buffer.count) == (3, 3, 1)
    assert closed.total().tolist() == [5.5]
    add(buffer, 16, None)
    schedule.closing = 8
    assert buffer.release(4).total().tolist() == [10]
    assert buffer.count == 0
