import asyncio
from concurrent.futures import ThreadPoolExecutor
from random import Random

from tests.cluster.virtual_loop import Process, VirtualLoop, run_virtually


def test_a_stopped_process_goes_on_later_and_a_killed_one_never() -> None:
    done: list[tuple[str, float]] = []

    async def work(name: str) -> None:
        try:
            await asyncio.sleep(1.0)
            await asyncio.to_thread(done.append, (name, asyncio.get_running_loop().time()))
        finally:
            done.append((f"{name} ends", asyncio.get_running_loop().time()))

    async def main() -> list[tuple[str, float]]:
        stopped, killed = Process("stopped"), Process("killed")
        stopped.start(work("stopped"))
        killed.start(work("killed"))
        await asyncio.sleep(0.5)
        stopped.stop()
        killed.kill()
        await asyncio.sleep(5)
        stopped.go_on()
        killed.go_on()
        await asyncio.sleep(5)
        return list(done)

    found = run_virtually(main(), Random(1))
    assert [name for name, _ in found] == ["stopped", "stopped ends"]
    assert all(5.5 <= at < 6 for _, at in found)


def test_one_thread_works_in_order_and_several_do_not() -> None:
    async def main(executor: ThreadPoolExecutor) -> list[int]:
        done: list[int] = []
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(executor, done.append, i) for i in range(20)))
        return done

    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(2) as two:
        assert run_virtually(main(one), Random(1)) == list(range(20))
        assert run_virtually(main(two), Random(1)) != list(range(20))


def test_a_seed_decides_the_order_of_what_is_ready() -> None:
    async def main() -> list[int]:
        order: list[int] = []
        for i in range(10):
            asyncio.get_running_loop().call_soon(order.append, i)
        await asyncio.sleep(1)
        assert isinstance(asyncio.get_running_loop(), VirtualLoop)
        return order

    orders = [run_virtually(main(), Random(seed)) for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
