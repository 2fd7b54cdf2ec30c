import math

import pytest

from offbeat.algorithms.components import ArrivalGroups, RunFacts
from offbeat.algorithms.components.schedules.arrival_groups import Place


def started(*seconds, steps=(5, 10), clients=3):
    """Return a schedule in which the first clients have these seconds a step, and nobody works."""
    schedule = ArrivalGroups(steps, latest_factor=2.0, speed_momentum=0.5)
    schedule.start(RunFacts(1, clients))
    for client, one in enumerate(seconds):
        begin(schedule, client, 0.0)
        assert hear(schedule, client, 10 * one, 10) is True
    return schedule


def begin(schedule, client, now):
    place = schedule.choose(client, now)
    schedule.assign(client, 0)
    schedule.enter(client, place, now)
    return place


def hear(schedule, client, now, steps):
    schedule.measure(client, steps, now)
    return schedule.hear(client)


def test_a_client_of_unknown_speed_is_alone_and_has_no_deadline():
    schedule = started()
    assert begin(schedule, 0, 0.0) == Place(10)
    assert schedule.deadline() == math.inf
    assert begin(schedule, 1, 0.0) == Place(10)
    assert (schedule.slots(), schedule.number) == (1, 0)
    assert hear(schedule, 1, 5.0, 10) is True
    assert (schedule.slots(), schedule.number, schedule.closing) == (2, 1, 1)


def test_the_group_with_the_most_steps_is_joined():
    schedule = started(1.0, 2.0, 1.0)
    assert begin(schedule, 0, 100.0).group is None  # arrives at 110
    assert begin(schedule, 2, 104.0) == Place(6, 3)
    schedule.lose(2, 0)
    assert schedule.number == 4
    assert begin(schedule, 1, 109.0).steps == 10  # arrives at 129
    assert begin(schedule, 2, 104.0) == Place(6, 3)
    assert schedule.choose(2, 120.0) == Place(9, 4)


def test_a_new_group_is_such_that_it_meets_another():
    schedule = started(1.0, 4.0)
    begin(schedule, 0, 100.0)  # latest at 120; the next ten steps end at 130
    assert begin(schedule, 1, 102.0) == Place(7, None, 130.0, 158.0)
    assert schedule.deadline() == 120
    assert schedule.choose(1, 121.0).steps == 10  # the deadline has passed, so there is no group to meet


@pytest.mark.parametrize("now", [100.1, 100.3, 107.7, 999.9])
def test_rounding_costs_no_step(now):
    schedule = started(0.03, 0.03)
    assert [begin(schedule, client, now).steps for client in (0, 1)] == [10, 10]
    assert schedule.choose(2, now).group is None


def test_a_speed_is_smoothed_and_a_visit_without_steps_tells_none():
    schedule = started(1.0)
    begin(schedule, 0, 100.0)
    hear(schedule, 0, 103.0, 1)
    begin(schedule, 0, 200.0)  # ½ · 1 + ½ · 3 = 2
    assert schedule.deadline() == 200 + 10 * 2 * 2
    hear(schedule, 0, 210.0, 0)
    begin(schedule, 0, 300.0)
    assert schedule.deadline() == 300 + 10 * 2 * 2


def test_members_wait_and_others_do_not():
    schedule = started(1.0, 1.0, 1.0)
    for client in range(3):
        begin(schedule, client, 100.0)
    number = schedule.number
    assert hear(schedule, 0, 109.0, 10) is False
    assert (schedule.returns_in(0), schedule.returns_in(1), schedule.number) == (number + 1, number, number)
    assert schedule.lose(1, 0) is False
    assert (schedule.returns_in(0), schedule.slots()) == (number + 2, 1)
    with pytest.raises(ValueError, match="client 0 cannot be assigned before its group"):
        schedule.assign(0, 0)
    assert schedule.expire(119.9) is False
    assert schedule.expire(120.0) is True
    assert schedule.returns_in(0) == schedule.number == number + 2
    assert schedule.deadline() == math.inf


def test_a_group_of_which_nobody_was_heard_ends_without_a_release():
    schedule = started(1.0)
    begin(schedule, 0, 100.0)
    assert schedule.expire(200.0) is False
    assert schedule.deadline() == math.inf
    assert schedule.group_of(0, 200.0) is None


def test_a_client_that_begins_anew_leaves_its_group():
    schedule = started(1.0, 1.0)
    begin(schedule, 0, 100.0)
    begin(schedule, 1, 100.0)
    begin(schedule, 0, 111.0)
    assert hear(schedule, 1, 112.0, 10) is True
    begin(schedule, 2, 100.0)
    begin(schedule, 2, 100.0)
    assert len(schedule._latest) == 2  # its first group is gone
