"""Worker processes that train clients: start, messages and main program.

A worker ends when the other end of its connection is closed, also if its parent was killed.
"""

import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Literal, NamedTuple

from offbeat_core.errors import OffbeatError

from offbeat.algorithms.components import LocalPlan, Payload
from offbeat.training.trainers.backend import Backend, Job
from offbeat.training.trainers.distributed.packed_workload import PackedWorkload, unpack_workload
from offbeat.training.trainers.distributed.shared_memory import SharedMemory, TensorLocation
from offbeat.training.trainers.loop import LoopBackend
from offbeat.training.worker_process import WorkerProcess, begin_work
from offbeat.training.workload import Workload


class WorkerSetup(NamedTuple):
    """The first message to a worker.

    Attributes:
        locations: Tensors in the shared memory: those of the workload; ``starts`` and ``results``, tables with one
            vector ``(d,)`` per row.
        packed: The workload, without its tensors.
        make: Makes the worker's backend.
    """

    locations: Mapping[str, TensorLocation]
    packed: PackedWorkload
    make: Callable[[Workload], Backend] = LoopBackend


class JobMessage(NamedTuple):
    """A ``Job`` for a worker, whose vectors are rows of the shared memory."""

    client: int
    visit: int
    version: int
    start: int  # row of starts
    result: int  # row of results
    plan: LocalPlan
    payload: Payload
    offset: int | None = None  # row of starts


Reply = tuple[Literal["done"], float, float | None] | tuple[Literal["mistake", "failed"], str]
"""The result's loss and squares, or the line of a user's mistake, or a traceback."""


class Worker(WorkerProcess):
    """A process that gets the setup and batches of jobs, and replies to each batch.

    Raises ``OSError`` if the limit of processes or open files is reached.
    """

    def __init__(self, memory: SharedMemory, setup: WorkerSetup) -> None:
        connection, other = Pipe()
        super().__init__(connection)
        files = (other.fileno(), memory.fd)
        with other:
            # multiprocessing would run the user's script again, and fails in daemons and some notebooks.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, *map(str, files)],
                pass_fds=files,
                stdin=subprocess.DEVNULL,
                process_group=0,  # Ctrl-C in a terminal must not reach it
                env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, sys.path)), "OMP_NUM_THREADS": "1"},
            )
        self.send(setup)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def wait(self) -> str:
        """Wait until the worker has ended; return its signal or exit code as text."""
        code = self._process.wait()
        self.connection.close()
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    def kill(self) -> None:
        """Kill the worker."""
        self._process.kill()
        self.wait()


class _JobRunner:
    """The backend of a worker process."""

    def __init__(self, memory: SharedMemory, setup: WorkerSetup) -> None:
        self._memory = memory
        self._setup = setup
        self._packed = setup.packed._replace(tensors={name: memory[name] for name in memory.locations})
        self._backend: Backend | None = None

    def run(self, batch: Sequence[JobMessage]) -> list[Reply]:
        """Return the replies of a batch, in order.

        If the training of several jobs fails, each is trained alone.
        """
        try:
            # Created with the first job, so that a model that cannot be loaded is a reply, too.
            self._backend = self._backend or self._setup.make(unpack_workload(self._packed))
            results = self._backend.train([self._job(message) for message in batch])
        except Exception as error:
            if len(batch) > 1:
                return [reply for message in batch for reply in self.run([message])]
            is_mistake = isinstance(error, OffbeatError)
            return [("mistake", str(error)) if is_mistake else ("failed", traceback.format_exc())]
        table = self._memory["results"]
        for message, result in zip(batch, results, strict=True):
            table[message.result] = result.vector
        return [("done", result.loss, result.squares) for result in results]

    def _job(self, message: JobMessage) -> Job:
        starts = self._memory["starts"]
        return Job(
            message.client,
            message.visit,
            message.version,
            starts[message.start],
            message.plan,
            message.payload,
            None if message.offset is None else starts[message.offset],
        )


def serve(connection: "Connection[Any, Any]", fd: int) -> None:
    """Train jobs from a connection until it closes.

    It receives a ``WorkerSetup`` and then batches of ``JobMessage``s, and sends each batch's list of ``Reply``s. The
    shared memory has descriptor ``fd``.
    """
    with suppress(EOFError, OSError):  # the other end is closed
        setup: WorkerSetup = connection.recv()
        runner = _JobRunner(SharedMemory(fd, setup.locations), setup)
        while True:
            reply = runner.run(connection.recv())
            # Flush the output of the user's code, since this process will be killed.
            print(end="", flush=True)
            connection.send(reply)


def main() -> None:
    """Run a worker process.

    Its arguments are the descriptors of its connection and of the shared memory.
    """
    begin_work()
    connection, memory = map(int, sys.argv[1:])
    serve(Connection(connection), memory)


if __name__ == "__main__":
    main()
