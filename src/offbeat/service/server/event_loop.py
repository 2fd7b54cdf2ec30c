"""The event loop of a server's process, until a signal ends it."""

import asyncio
import gc
import signal
import sys
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

_DISK_THREADS = 32  # most of them wait for the disk


def run_until_a_signal(main: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    """Run ``main`` with an event that SIGTERM or Ctrl-C sets."""

    async def with_signals() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(_DISK_THREADS))
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        await main(stop)

    _relax_garbage_collection()
    with asyncio.Runner(loop_factory=_event_loop_factory()) as runner:
        runner.run(with_signals())


def _event_loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    # uvloop serves small requests faster; it does not exist for Windows.
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop


def _relax_garbage_collection() -> None:
    # Requests make many objects, but few cycles.
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 100)
