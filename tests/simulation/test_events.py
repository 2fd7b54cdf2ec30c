from hypothesis import given
from hypothesis import strategies as st

from offbeat.simulation.events import EventQueue, Kind


def test_kinds_are_in_the_order_in_which_an_instant_unfolds():
    assert [kind.name for kind in sorted(Kind)] == [
        "ARRIVAL",
        "OFFER",
        "LAPSE",
        "TICK",
        "AVAILABILITY",
        "ASSIGNMENT",
        "EVALUATION",
    ]


@given(st.lists(st.tuples(st.sampled_from([0.0, 1.0, 2.5]), st.sampled_from(list(Kind)))))
def test_events_come_by_time_then_kind_then_the_order_they_were_put_in(script):
    queue = EventQueue()
    for number, (seconds, kind) in enumerate(script):
        queue.put(seconds, kind, {"subjects": "need not be comparable", "number": number})
    expected = sorted(range(len(script)), key=lambda number: (*script[number], number))
    assert [queue.take().subject["number"] for _ in script] == expected


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
