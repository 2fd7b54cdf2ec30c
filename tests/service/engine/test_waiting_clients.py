import asyncio

from offbeat.algorithms import LocalPlan
from offbeat.coordinator import Assignment
from offbeat.service.engine.waiting_clients import WaitingClients

WORK = Assignment(3, 0, 0, LocalPlan(steps=1, batch_size=1, lr=0.1), 10.0, None)


def run(check):
    async def main():
        check(WaitingClients())

    asyncio.run(main())


def test_a_client_that_gets_work_does_not_lack_it():
    def check(waiting):
        future = waiting.add(3)
        assert len(waiting) == 1
        waiting.give(WORK)
        assert future.result() is WORK
        assert not waiting.remove(3, future)
        assert len(waiting) == 0

    run(check)


def test_a_client_that_stops_waiting_lacks_work():
    def check(waiting):
        future = waiting.add(3)
        assert waiting.remove(3, future)
        assert not future.done()
        assert not waiting.remove(3, future)
        waiting.give(WORK)  # to a client that does not wait: nothing happens

    run(check)


def test_all_requests_of_a_client_get_one_answer():
    def check(waiting):
        first, second = waiting.add(3), waiting.add(3)
        assert len(waiting) == 1
        waiting.give(WORK)
        waiting.give(WORK)
        assert first.result() is second.result() is WORK
        assert not waiting.remove(3, first)
        assert not waiting.remove(3, second)
        assert len(waiting) == 0

    run(check)


def test_a_client_lacks_work_once_its_last_request_ends():
    def check(waiting):
        first, second = waiting.add(3), waiting.add(3)
        assert not waiting.remove(3, first)
        assert len(waiting) == 1
        assert waiting.remove(3, second)
        assert len(waiting) == 0

    run(check)


def test_a_request_after_an_answer_waits_anew():
    def check(waiting):
        first = waiting.add(3)
        waiting.release(3)
        second = waiting.add(3)
        assert not second.done()
        assert not waiting.remove(3, first)
        assert waiting.remove(3, second)

    run(check)


def test_all_requests_can_be_released():
    def check(waiting):
        futures = [waiting.add(3), waiting.add(4)]
        waiting.give(WORK)
        waiting.release_all()
        assert [future.result() for future in futures] == [WORK, None]
        assert waiting.remove(4, futures[1])

    run(check)


def test_one_client_is_released():
    def check(waiting):
        one, other = waiting.add(3), waiting.add(4)
        waiting.release(3)
        waiting.release(5)  # it does not wait
        assert one.result() is None
        assert not other.done()
        waiting.give(WORK)  # too late
        assert waiting.remove(3, one)

    run(check)
