import torch

from offbeat.algorithms.components import ArrivalGroups, ByGroup, RunFacts, Update, Weight


def started():
    schedule = ArrivalGroups((1, 2), 1.0, 1.0)
    buffer = ByGroup(schedule)
    for part in (schedule, buffer):
        part.start(RunFacts(1, 4))
    return schedule, buffer


def add(buffer, value, group):
    update = Update(0, 0, torch.tensor([float(value)]), examples=1, steps=1, normaliser=1.0)
    buffer.add(update, Weight(0.5, round=group))


def test_a_release_is_of_one_group_and_of_those_without():
    schedule, buffer = started()
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


def test_a_restart_keeps_the_groups():
    _, buffer = started()
    for value, group in ((1, 7), (2, None), (4, 8)):
        add(buffer, value, group)
    schedule, restored = started()
    restored.load_state_dict(buffer.state_dict())
    schedule.closing = 8
    assert restored.release(0).total().tolist() == [3]
    assert restored.count == 1
