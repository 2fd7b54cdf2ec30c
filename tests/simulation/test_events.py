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


def test_a_queue_with_nothing_but_evaluations_stands_still():
    queue = EventQueue()
    queue.put(1.0, Kind.EVALUATION)
    assert queue.stands_still
    queue.put(2.0, Kind.ARRIVAL)
    assert not queue.stands_still
    assert queue.next_seconds == 1.0
    queue.take()
    assert not queue.stands_still
    queue.take()
    assert queue.stands_still


def test_a_queue_with_nothing_but_ticks_and_evaluations_has_only_ticks():
    queue = EventQueue()
    assert queue.only_ticks
    queue.put(1.0, Kind.TICK, 1)
    queue.put(1.0, Kind.EVALUATION)
    assert queue.only_ticks
    assert not queue.stands_still
    queue.put(0.5, Kind.DEPARTURE, 3)
    assert not queue.only_ticks
    assert queue.take()[1] == Kind.DEPARTURE
    assert queue.only_ticks
    queue.take()
    assert queue.only_ticks
    assert queue.stands_still


@pytest.mark.parametrize("kind", KINDS)
def test_nobody_is_at_work_when_clients_come_and_go_at_most(kind):
    queue = EventQueue()
    assert queue.at_work == 0
    queue.put(1.0, kind)
    coming_and_going = (Kind.TICK, Kind.DEPARTURE, Kind.AVAILABILITY, Kind.EVALUATION)
    assert (not queue.at_work) is (kind in coming_and_going)
    queue.take()
    assert queue.at_work == 0


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
        assert restored.stands_still == queue.stands_still
        assert restored.only_ticks == queue.only_ticks
        assert restored.at_work == queue.at_work
        assert restored.next_seconds == queue.next_seconds
        event = restored.take()
        assert event == queue.take()
    assert restored._heap == []
    assert restored.stands_still


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
