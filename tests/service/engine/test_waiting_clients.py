import asyncio
from collections.abc import Awaitable, Callable

import pytest

from offbeat.service.engine import waiting_clients
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


def test_a_request_has_its_turn_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(waiting: WaitingClients) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        short, other, woken, cancelled = (waiting.add(client, 0.05) for client in (3, 4, 5, 6))
        long, endless = waiting.add(3, 0.2), waiting.add(7)
        waiting.wake(5)
        cancelled.cancel()
        await asyncio.gather(short, other, woken)
        assert 0.05 <= loop.time() - began < 0.15
        await asyncio.sleep(0)
        assert (len(waiting), long.done(), waiting.gone) == (2, False, {4, 6})
        await long
        await asyncio.sleep(0)
        assert (len(waiting), endless.done(), waiting.gone) == (1, False, {3, 4, 6})
        assert not waiting._ends

    monkeypatch.setattr(waiting_clients, "_TICK_SECONDS", 0.01)
    run(check)


def test_an_assignment_between_the_end_of_the_time_and_the_turn_is_not_forgotten() -> None:
    async def check(waiting: WaitingClients) -> None:
        turn = waiting.add(3, 0.0)
        while not turn.done():
            await asyncio.sleep(0)
        waiting.wake(3)  # it has work, in the same turn of the event loop
        await asyncio.sleep(0)
        assert (len(waiting), waiting.gone) == (0, set())

    run(check)
