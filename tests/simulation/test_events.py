"""The queue of events."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbeat.simulation.events import EventQueue, Kind

KINDS = range(Kind.EVALUATION + 1)


def test_kinds_are_in_the_order_in_which_an_instant_unfolds():
    names = {value: name for name, value in vars(Kind).items() if isinstance(value, int)}
    assert [names[kind] for kind in KINDS] == [
        "ARRIVAL",
        "OFFER",
        "LOSS",
        "LAPSE",
        "TICK",
        "DEPARTURE",
        "AVAILABILITY",
        "EVALUATION",
    ]


SCRIPTS = st.lists(st.tuples(st.sampled_from([0.0, 1.0, 2.5, 1e300]), st.sampled_from(KINDS)))


def filled(script):
    queue = EventQueue()
    for number, (seconds, kind) in enumerate(script):
        queue.put(seconds, kind, number)
    return queue


@given(SCRIPTS)
def test_events_come_by_time_then_kind_then_the_order_they_were_put_in(script):
    queue = filled(script)
    expected = sorted(range(len(script)), key=lambda number: (*script[number], number))
    assert [queue.take()[3] for _ in script] == expected


@pytest.mark.parametrize("kind", KINDS)
def test_a_queue_counts_work_and_what_is_not_passive(kind):
    queue = EventQueue()
    assert (queue.at_work, queue.is_passive, queue.next_seconds) == (0, True, math.inf)
    queue.put(1.0, kind)
    queue.put(2.0, Kind.EVALUATION)
    coming_and_going = (Kind.DEPARTURE, Kind.AVAILABILITY)
    is_passive = kind in (Kind.TICK, Kind.EVALUATION)
    assert queue.at_work == (not is_passive and kind not in coming_and_going)
    assert queue.is_passive is is_passive
    assert queue.next_seconds == 1.0
    queue.take()
    assert (queue.at_work, queue.is_passive) == (0, True)


@given(SCRIPTS, SCRIPTS, st.data())
def test_a_queue_goes_on_from_its_state_as_if_nothing_had_been(script, later, data):
    queue, restored = filled(script), EventQueue()
    for _ in range(data.draw(st.integers(0, len(script)))):
        queue.take()
    restored.load_state_dict(queue.state_dict())
    for number, (seconds, kind) in enumerate(later):
        for each in (queue, restored):
            each.put(seconds, kind, 1000 + number)
    for _ in range(len(queue._heap)):
        assert restored.is_passive == queue.is_passive
        assert restored.at_work == queue.at_work
        assert restored.next_seconds == queue.next_seconds
        event = restored.take()
        assert event == queue.take()
    assert restored._heap == []


def test_what_is_saved_does_not_change_with_the_queue():
    queue = filled([(1.0, Kind.OFFER), (2.0, Kind.LOSS)])
    state, restored = queue.state_dict(), EventQueue()
    queue.take()
    queue.put(0.5, Kind.ARRIVAL)
    restored.load_state_dict(state)
    assert [restored.take()[:2] for _ in range(2)] == [(1.0, Kind.OFFER), (2.0, Kind.LOSS)]


@given(SCRIPTS)
def test_an_instant_is_over_when_only_evaluations_are_left_of_it(script):
    queue = filled(script)
    for instant in (0.0, 1.0, 2.5):
        left = [kind for seconds, kind in script if seconds == instant and kind != Kind.EVALUATION]
        earlier = [seconds for seconds, _ in script if seconds < instant]
        if not earlier:
            assert queue.is_over(instant) is (not left)
