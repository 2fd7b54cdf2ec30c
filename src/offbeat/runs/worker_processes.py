"""Several runs at once, each in a process of its own."""

import math
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, Literal, Self

from offbeat_core.errors import OffbeatError

from offbeat.runs.interruption import InterruptedRunError, Interruption, let_children_end
from offbeat.runs.run import RunTask, carry_out
from offbeat.training.worker_process import WorkerProcess, begin_work
from offbeat.worlds.workload import build_dataset

if TYPE_CHECKING:
    from offbeat.runs.progress import Progress

_PATIENCE_SECONDS = 60.0  # for a worker that was asked to stop
_IDLE_PATIENCE_SECONDS = 5.0  # for one without a task; its user's threads may go on
# A fork server imports PyTorch once for all workers. On macOS a fork of a process with system libraries may crash.
_CONTEXT = (
    multiprocessing.get_context("forkserver") if sys.platform == "linux" else multiprocessing.get_context("spawn")
)

# From a worker: an evaluation, the end of its run, an interruption, or an error message for the user.
Message = tuple[Literal["evaluation", "done", "interrupted", "error"], Any]


class _Worker(WorkerProcess):
    """A process, and the task that it carries out."""

    def __init__(self) -> None:
        # pyarrow imports pandas, when a run writes its first rows.
        _CONTEXT.set_forkserver_preload([__name__, "pandas"])
        connection, other = _CONTEXT.Pipe()
        super().__init__(connection)
        # Not a daemon: these may not have children, such as those of a user's DataLoader.
        self.process = _CONTEXT.Process(target=_work, args=(other, dict(os.environ)))
        with _ctrl_c_blocked():
            self.process.start()
        other.close()
        self.task: RunTask | None = None
        self.began = 0.0

    def begin(self, task: RunTask) -> None:
        self.task = task
        self.began = time.monotonic()
        self.send(task)

    def receive_or_raise(self) -> Message:
        message: Message | None = self.receive()
        if message is not None:
            return message
        self.process.join()
        assert self.task is not None
        if self.process.exitcode == -signal.SIGTERM:  # the signal came before the process had its handler
            return "interrupted", None
        name, code = self.task.name, self.process.exitcode or 0
        if code >= 0:
            raise OffbeatError(f"the process of {name}, failed (exit code {code}): see the output above")
        raise OffbeatError(
            f"the process of {name}, was killed (exit code {code}), perhaps because memory ran out: run the same "
            "command with fewer --jobs"
        )


@contextmanager
def _ctrl_c_blocked() -> Generator[None]:
    """Block Ctrl-C while a process is started, which inherits the block."""
    if os.name == "nt":
        yield
        return
    # The resource tracker would unblock the signal if it were started together with the first process.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Workers:
    """Up to ``jobs`` processes for runs; they live until the ``with`` statement ends."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self._workers: list[_Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def carry_out(self, tasks: Sequence[RunTask], progress: "Progress", interruption: Interruption) -> None:
        """Run tasks: each label once, in order, then the slowest label first.

        So all processes end at about the same time. If a run fails or a signal comes, all others stop where they can be
        resumed.
        """
        waiting = list(tasks)
        took: dict[str, float] = {}  # seconds by label; 0 for a label whose first run is not finished
        try:
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
                    progress.begin(task.label, task.seed)
                    idle.pop().begin(task)
                busy = {worker.connection: worker for worker in self._workers if worker.task}
                ready = wait(list(busy), timeout=0.2)
                # Again, because a signal to all processes ends the workers as well.
                interruption.check()
                for connection in ready:
                    worker = busy[connection]  # pyright: ignore[reportArgumentType]
                    task = worker.task
                    assert task is not None
                    kind, content = worker.receive_or_raise()
                    if kind == "evaluation":
                        progress.advance(task.label, task.seed, content)
                    elif kind == "done":
                        progress.end(task.label, task.seed)
                        took[task.label] = time.monotonic() - worker.began
                        worker.task = None
                    elif kind == "error":
                        raise OffbeatError(content)
                    else:  # the signal was sent to the worker alone
                        raise InterruptedRunError(signal.SIGTERM)
        except BaseException:
            self._stop()
            raise

    def _stop(self) -> None:
        """Let each run write its last checkpoint and end."""
        workers, self._workers = self._workers, []
        for worker in workers:
            if worker.task is not None:
                worker.process.terminate()
            # A worker cannot end while it waits for a full pipe; one without a task ends when the pipe closes.
            worker.connection.close()
        for worker in workers:
            worker.process.join(_PATIENCE_SECONDS if worker.task else _IDLE_PATIENCE_SECONDS)
            worker.process.kill()


def end_with_parent() -> None:
    """End this process when its parent is killed.

    Another process may resume the run then, so this one must not write any more.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    for child in multiprocessing.active_children():  # of the user's code
        child.kill()
    os._exit(1)


def _work(connection: "Connection[Message, RunTask]", environment: dict[str, str]) -> None:
    """Carry out the received tasks, until the connection closes."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    os.environ.clear()  # the fork server's may be older
    os.environ.update(environment)
    begin_work()  # the parent passes Ctrl-C on as SIGTERM
    signals: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))
    let_children_end()

    def check() -> None:
        if signals:
            raise InterruptedRunError(signals[0])

    def send(message: Message) -> None:
        with suppress(OSError):  # the parent has closed the connection
            connection.send(message)

    dataset, data = None, None
    while not signals:
        try:
            task = connection.recv()
        except (EOFError, OSError):
            return
        try:
            if dataset is None or task.experiment.data != data:
                dataset, data = build_dataset(task.experiment.data), task.experiment.data
            carry_out(task, dataset, on_evaluation=lambda evaluation: send(("evaluation", evaluation)), check=check)
            send(("done", None))
        except OffbeatError as error:
            send(("error", str(error)))
        except InterruptedRunError:
            send(("interrupted", None))
