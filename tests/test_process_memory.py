import gc
import weakref

import pytest

from offbeat.process_memory import rare_garbage_collection


@pytest.fixture(autouse=True)
def _usual_thresholds():
    usual = gc.get_threshold()
    yield
    gc.set_threshold(*usual)


def searches(objects: int) -> int:
    """Return how many searches the collector makes while so many objects are made."""
    before = gc.get_stats()[0]["collections"]
    kept = [[number] for number in range(objects)]
    found = gc.get_stats()[0]["collections"] - before
    assert len(kept) == objects
    return found


def test_searches_are_rarer_within_and_as_often_as_before_afterwards():
    gc.set_threshold(100, 7, 8)
    assert searches(4_000) > 30
    with rare_garbage_collection():
        assert gc.get_threshold()[1:] == (7, 8)
        assert searches(4_000) <= 1
    assert gc.get_threshold() == (100, 7, 8)


@rare_garbage_collection()
def fail():
    raise KeyError


def test_the_thresholds_come_back_after_an_error():
    usual = gc.get_threshold()
    with pytest.raises(KeyError):
        fail()
    assert gc.get_threshold() == usual


def test_cycles_are_still_found():
    class Knot:
        def __init__(self) -> None:
            self.self = self

    with rare_garbage_collection():
        lost = weakref.ref(Knot())
        searches(12_000)
        assert lost() is None


@pytest.mark.parametrize("young", [0, 50_000])
def test_a_user_who_wants_still_fewer_gets_them(young):
    gc.set_threshold(young, 10, 10)
    with rare_garbage_collection():
        assert gc.get_threshold() == (young, 10, 10)
