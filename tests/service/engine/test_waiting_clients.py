import asyncio
from collections.abc import Awaitable, Callable

from offbeat.service.engine.waiting_clients import WaitingClients


def run(check: Callable[[WaitingClients], Awaitable[None]]) -> None:
    async def main() -> None:
        await check(WaitingClients())

    asyncio.run(main())


def test_all_requests_of_a_client_get_their_turn_at_once() -> None:
    async def check(waiting: WaitingClients) -> None:
        turns, other = [waiting.add(3), waiting.add(3)], waiting.add(4)
        assert (len(waiting), 3 in waiting, 5 in waiting) == (2, True, False)
        waiting.wake(3)
        waiting.wake(3)
        waiting.wake(5)  # it does not wait
        await asyncio.gather(*turns)
        assert not other.done()
        assert (len(waiting), 3 in waiting, waiting.gone) == (1, False, set())

    run(check)


def test_a_client_is_gone_once_its_last_request_ends() -> None:
    async def check(waiting: WaitingClients) -> None:
        first, second = waiting.add(3), waiting.add(3)
        first.cancel()
        await asyncio.sleep(0)
        assert (len(waiting), waiting.gone) == (1, set())
        second.cancel()
        waiting.wake(4)
        await asyncio.sleep(0)
        assert (len(waiting), waiting.gone) == (0, {3})
        waiting.add(3)
        assert (len(waiting), waiting.gone) == (1, set())

    run(check)


def test_a_request_after_a_turn_waits_anew() -> None:
    async def check(waiting: WaitingClients) -> None:
        first = waiting.add(3)
        waiting.wake(3)
        second = waiting.add(3)
        await first
        await asyncio.sleep(0)
        assert not second.done()
        assert (len(waiting), waiting.gone) == (1, set())

    run(check)


def test_a_turn_after_the_end_of_a_request_harms_nothing() -> None:
    async def check(waiting: WaitingClients) -> None:
        turn = waiting.add(3)
        turn.cancel()
        waiting.wake(3)
        await asyncio.sleep(0)
        assert (len(waiting), waiting.gone) == (0, set())  # it has work, and lacks nothing

    run(check)


def test_all_clients_can_be_woken_without_work() -> None:
    async def check(waiting: WaitingClients) -> None:
        turns = [waiting.add(3), waiting.add(4)]
        waiting.wake(3)
        waiting.wake_all()
        await asyncio.gather(*turns)
        assert (len(waiting), waiting.gone) == (0, {4})

    run(check)
