"""Runs in processes of their own, several at once."""

import math
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any, Literal, Self

import torch

from offbeat.errors import OffbeatError
from offbeat.runs.interruption import InterruptedRunError, Interruption
from offbeat.runs.run import RunTask, carry_out
from offbeat.simulation.records import Evaluation
from offbeat.worlds.simulation import build_dataset

_PATIENCE_SECONDS = 60.0  # for a worker that was asked to stop

# What a worker says: an evaluation, that its run is done, that it was interrupted, or the user's mistake in one line.
Message = tuple[Literal["evaluation", "done", "interrupted", "error"], Any]


class _Worker:
    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=_work, args=(other, os.getpid()), daemon=True)
        with _ctrl_c_blocked():
            self.process.start()
        other.close()
        self.task: RunTask | None = None
        self.since = 0.0

    def give(self, task: RunTask) -> None:
        self.task = task
        self.since = time.monotonic()
        with suppress(OSError):  # if it has died, there is nothing to hear from it
            self.connection.send(task)

    def hear(self) -> Message:
        try:
            return self.connection.recv()
        except (EOFError, ConnectionError):
            self.process.join()
            assert self.task is not None
            if self.process.exitcode == -signal.SIGTERM:  # it came before the process was ready for it
                return "interrupted", None
            name, code = f"{self.task.label}, seed {self.task.seed}", self.process.exitcode or 0
            if code >= 0:
                raise OffbeatError(
                    f"the process of {name}, failed (exit code {code}); what is above says why"
                ) from None
            raise OffbeatError(
                f"the process of {name}, was killed (exit code {code}), perhaps for want of memory: go on with "
                "--resume and fewer --jobs"
            ) from None


@contextmanager
def _ctrl_c_blocked() -> Generator[None]:
    """Keep Ctrl-C from a process that is started from its first moment on, as it inherits that; here it only waits."""
    if os.name == "nt":
        yield
        return
    # Were it started along with the first process, it would unblock the signal.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Workers:
    """Processes that carry out runs; they live from one call to the next, until the ``with`` statement ends.

    Args:
        jobs: How many processes there are at most.
    """

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self._workers: list[_Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def carry_out(
        self,
        tasks: Sequence[RunTask],
        *,
        begin: Callable[[RunTask], None],
        tell: Callable[[RunTask, Evaluation], None],
        end: Callable[[RunTask], None],
        interruption: Interruption,
    ) -> None:
        """Run tasks: each label once, in order, then those of the label that took longest, so that all end together.

        Args:
            tasks: What to run.
            begin: Is told a task that begins.
            tell: Is told a task's evaluations.
            end: Is told a task that is done.
            interruption: Is looked at often; if somebody asks for it, all runs are to stop.

        Raises:
            OffbeatError: A run failed by something that the user can mend; the others stop where they can be resumed.
            InterruptedRunError: Somebody asked for it.
        """
        try:
            self._carry_out(list(tasks), begin, tell, end, interruption)
        except BaseException:
            self._stop()
            raise

    def _carry_out(
        self,
        waiting: list[RunTask],
        begin: Callable[[RunTask], None],
        tell: Callable[[RunTask, Evaluation], None],
        end: Callable[[RunTask], None],
        interruption: Interruption,
    ) -> None:
        took: dict[str, float] = {}  # by label, in seconds; what has begun and is not done comes last
        while waiting or any(worker.task for worker in self._workers):
            interruption.check()
            idle = [worker for worker in self._workers if worker.task is None]
            while waiting and (idle or len(self._workers) < self.jobs):
                if not idle:
                    idle.append(_Worker())
                    self._workers.append(idle[-1])
                task = max(waiting, key=lambda task: took.get(task.label, math.inf))
                waiting.remove(task)
                took.setdefault(task.label, 0.0)
                begin(task)
                idle.pop().give(task)
            busy = {worker.connection: worker for worker in self._workers if worker.task}
            heard = wait(list(busy), timeout=0.2)
            # Again, because a signal to all processes ends the others as well.
            interruption.check()
            for connection in heard:
                worker = busy[connection]  # pyright: ignore[reportArgumentType]
                assert worker.task is not None
                kind, content = worker.hear()
                if kind == "evaluation":
                    tell(worker.task, content)
                elif kind == "done":
                    end(worker.task)
                    took[worker.task.label] = time.monotonic() - worker.since
                    worker.task = None
                elif kind == "error":
                    raise OffbeatError(content)
                else:  # somebody sent the signal to the worker alone
                    raise InterruptedRunError(signal.SIGTERM)

    def _stop(self) -> None:
        """Let each run write its last checkpoint and end."""
        workers, self._workers = self._workers, []
        for worker in workers:
            if worker.task is None:
                worker.process.kill()
            else:
                worker.process.terminate()
        for worker in workers:
            # A pipe that nobody empties would keep the worker from ending.
            worker.connection.close()
            worker.process.join(_PATIENCE_SECONDS)
            worker.process.kill()


def _work(connection: "Connection[Message, RunTask]", parent: int) -> None:
    """Carry out the tasks that come, until the connection ends."""
    torch.set_num_threads(1)
    # Ctrl-C goes to all processes of a terminal; the first one passes it on as SIGTERM.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))

    def check() -> None:
        if os.getppid() != parent:
            # The parent was killed, and somebody may go on with the run at once: nothing more may be written.
            os._exit(1)
        if asked:
            raise InterruptedRunError(asked[0])

    def say(message: Message) -> None:
        with suppress(OSError):  # nobody listens any more
            connection.send(message)

    dataset, data = None, None
    while not asked:
        try:
            task = connection.recv()
        except (EOFError, OSError):
            return
        try:
            if dataset is None or task.experiment.data != data:
                dataset, data = build_dataset(task.experiment.data), task.experiment.data
            carry_out(task, dataset, tell=lambda evaluation: say(("evaluation", evaluation)), check=check)
            say(("done", None))
        except OffbeatError as error:
            say(("error", str(error)))
        except InterruptedRunError:
            say(("interrupted", None))
