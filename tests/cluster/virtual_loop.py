"""An event loop in virtual time that runs the processes of a cluster; a seed decides the order of events."""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")

_HERE: ContextVar["Process | None"] = ContextVar("process", default=None)


class Process:
    """A process of the simulated world: all that is called in its context.

    It can be stopped and continued, as by SIGSTOP and SIGCONT, or killed: nothing of it runs then, no ``finally``
    either.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_stopped = self.is_killed = False
        self.context = copy_context()
        self.context.run(_HERE.set, self)
        self._held: list[asyncio.Handle] = []  # what a killed process holds lives on, so that nothing of it is closed

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine in the process."""
        return asyncio.get_running_loop().create_task(work, context=self.context.copy())

    def run(self, handle: asyncio.Handle) -> None:
        """Run a callback of the process, now or once it is continued."""
        if self.is_stopped or self.is_killed:
            self._held.append(handle)
        else:
            handle._run()

    def stop(self) -> None:
        self.is_stopped = True

    def go_on(self) -> None:
        self.is_stopped = False
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        if not self.is_killed:
            loop.take_back(self._held)
            self._held = []

    def kill(self) -> None:
        self.is_killed = True


def here() -> Process | None:
    """Return the process whose code is running; None outside of all."""
    return _HERE.get()


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs coroutines that wait for each other, for time and for executors, and for nothing else.

    Of all callbacks that are ready any may come first. When none is, time goes on to the next timer at once. Work for
    executors is done in one go at some later time.
    """

    def __init__(self, random: Random, thread_seconds: float = 0.002) -> None:
        super().__init__()
        self._now = 0.0
        self._random = random
        self._thread_seconds = thread_seconds
        self._outside = Context()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []  # a heap
        self._number = 0  # of the last timer
        self._tasks: list[asyncio.Task[Any]] = []  # so that none ends before the world does
        self._queues: dict[Any, deque[Callable[[], None]]] = {}  # by executor of one thread
        self.problems: list[str] = []
        self.wires: Any = None  # the connections of processes
        self.set_task_factory(self._new_task)
        self.set_exception_handler(self._note_problem)

    def time(self) -> float:
        return self._now

    def later(self, seconds: float, call: Callable[..., object], *arguments: Any) -> None:
        """Call a function outside of all processes, so that it is called whatever becomes of them."""
        self.call_later(seconds, call, *arguments, context=self._outside)

    def take_back(self, handles: list[asyncio.Handle]) -> None:
        self._ready.extend(handles)

    def run_in_executor(self, executor: Executor | None, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # pyright: ignore
        future: asyncio.Future[T] = self.create_future()

        def work() -> None:
            error = result = None
            try:
                result = func(*args)
            except BaseException as caught:
                error = caught
            self.call_later(self._thread_time(), end, result, error)

        def end(result: Any, error: BaseException | None) -> None:
            if future.done():  # cancelled
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        if getattr(executor, "_max_workers", 0) != 1:
            self.call_later(self._thread_time(), work)
            return future
        # One thread does its work in order.
        queue = self._queues.setdefault(executor, deque())
        queue.append(work)
        self.call_later(self._thread_time(), lambda: queue.popleft()())
        return future

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:  # pyright: ignore
        return self.wires.listen((host, port), protocol_factory)

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:  # pyright: ignore
        return await self.wires.connect((host, port), protocol_factory)

    def end(self) -> None:
        """Close what killed processes have left, in any order."""
        self.set_exception_handler(lambda _, context: None)
        for task in self._tasks:
            for _ in range(10):
                if task.done() or _is_closed(task.get_coro()):
                    break
            task._log_destroy_pending = False  # pyright: ignore
        self._tasks.clear()

    def _thread_time(self) -> float:
        return self._random.expovariate(1 / self._thread_seconds)

    def _new_task(self, loop: asyncio.AbstractEventLoop, work: Any, context: Context | None = None) -> Any:
        task = asyncio.Task(work, loop=loop, context=context)
        self._tasks.append(task)
        return task

    def _note_problem(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if "was never retrieved" not in context["message"]:
            self.problems.append(f"{context['message']}: {context.get('exception')!r}")

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._number += 1
        heapq.heappush(self._timers, (when, self._number, handle))
        return handle

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def _run_once(self) -> None:
        timers = self._timers
        if not self._ready:
            while timers and timers[0][2].cancelled():
                heapq.heappop(timers)
            assert timers, "all wait for each other"
            self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            self._ready.append(heapq.heappop(timers)[2])
        ready = list(self._ready)
        self._ready.clear()
        if len(ready) > 1:
            self._random.shuffle(ready)
        for handle in ready:
            if handle.cancelled():
                continue
            process = handle._context.get(_HERE)  # pyright: ignore
            if process is None:
                handle._run()
            else:
                process.run(handle)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    def _process_events(self, event_list: list[Any]) -> None:
        assert not event_list

    def _write_to_self(self) -> None:
        pass


def _is_closed(work: Any) -> bool:
    try:
        work.close()
    except BaseException:
        return False  # it waits for something else now
    return True


def run_virtually(main: Coroutine[Any, Any, T], random: Random) -> T:
    """Run a coroutine to its end in virtual time."""
    loop = VirtualLoop(random)
    try:
        return loop.run_until_complete(main)
    finally:
        loop.end()
        loop.close()
