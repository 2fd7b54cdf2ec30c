"""A process that trains clients for another one: how it is started, what it is sent, and its main program.

It ends by itself as soon as nobody holds the other end of its connection any more.
"""

import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from offbeat.algorithms.components import LocalPlan, Payload
from offbeat.errors import OffbeatError
from offbeat.training.augmentation import AugmentationName
from offbeat.training.flat_model import FlatModel
from offbeat.training.trainers.loop import LoopTrainer
from offbeat.training.trainers.shared_memory import Place, SharedMemory, unpacked
from offbeat.training.trainers.trainer import Job


class Setup(NamedTuple):
    """What a worker is sent first.

    Attributes:
        places: Where in the shared memory is what: ``code`` is a ``packed`` module and loss; ``inputs``, ``labels``;
            ``shards``, one after the other, and their ``sizes``; ``starts`` and ``results``, a vector ``(d,)`` a row.
        seed: The run's seed.
        augmentation: How inputs are changed at random, if they are.
    """

    places: Mapping[str, Place]
    seed: int
    augmentation: AugmentationName | None = None


class Order(NamedTuple):
    """A job for a worker.

    Attributes:
        client: As in ``Job``.
        visit: As in ``Job``.
        version: As in ``Job``.
        start: The row of ``starts`` that holds the starting model.
        result: The row of ``results`` for the vector.
        plan: As in ``Job``.
        payload: As in ``Job``.
        offset: The row of ``starts`` that holds the offset; None for no offset.
    """

    client: int
    visit: int
    version: int
    start: int
    result: int
    plan: LocalPlan
    payload: Payload
    offset: int | None = None


# An order is done, with its mean loss; or the user's mistake in one line; or a traceback. In the order of the orders.
Answer = tuple[Literal["done"], float] | tuple[Literal["mistake", "failed"], str]


class Worker:
    """A worker, as the process sees it that starts it.

    Args:
        memory: The shared memory.
        setup: What it is sent first.

    Attributes:
        connection: To it.

    Raises:
        OSError: There can be no more processes or files.
    """

    def __init__(self, memory: SharedMemory, setup: Setup) -> None:
        self.connection, other = Pipe()
        files = (other.fileno(), memory.fd)
        with other:
            # Not multiprocessing, which runs the user's script again, and not in daemons or with every notebook.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, *map(str, files)],
                pass_fds=files,
                stdin=subprocess.DEVNULL,
                process_group=0,  # Ctrl-C in a terminal is not for it
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(map(str, sys.path)),
                    "OMP_NUM_THREADS": "1",
                },
            )
        self.give(setup)

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    def give(self, message: Setup | Order) -> None:
        """Send it something; if it has died, the next ``hear`` says so."""
        with suppress(OSError):
            self.connection.send(message)

    def hear(self) -> Answer | None:
        """Wait for its next answer and return it; None if it has died."""
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            return None

    def wait(self) -> str:
        """Wait until it has ended; return how."""
        code = self._process.wait()
        self.connection.close()
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self.wait()


class _Bench:
    """Where orders are carried out."""

    def __init__(self, memory: SharedMemory, setup: Setup) -> None:
        self._memory = memory
        self._setup = setup
        self._trainer: LoopTrainer | None = None

    def carry_out(self, order: Order) -> Answer:
        try:
            # Only here, so that a model that cannot be made is an answer as well.
            self._trainer = self._trainer or self._made()
            starts = self._memory["starts"]
            offset = None if order.offset is None else starts[order.offset]
            job = Job(order.client, order.visit, order.version, starts[order.start], order.plan, order.payload, offset)
            (result,) = self._trainer.train([job])
            self._memory["results"][order.result] = result.vector
            return "done", result.loss
        except OffbeatError as error:
            return "mistake", str(error)
        except Exception:
            return "failed", traceback.format_exc()

    def _made(self) -> LoopTrainer:
        module, loss = unpacked(self._memory["code"])
        return LoopTrainer(
            FlatModel(module),
            loss=loss,
            inputs=self._memory["inputs"],
            labels=self._memory["labels"],
            shards=np.split(self._memory["shards"].numpy(), np.cumsum(self._memory["sizes"].numpy())[:-1]),
            seed=self._setup.seed,
            augmentation=self._setup.augmentation,
        )


def serve(connection: "Connection[Any, Any]", fd: int) -> None:
    """Carry out the orders that come, until the connection ends.

    Args:
        connection: Brings a ``Setup`` and then ``Order``s, takes ``Answer``s.
        fd: The shared memory's file.
    """
    with suppress(EOFError, OSError):  # nobody is there any more
        setup: Setup = connection.recv()
        bench = _Bench(SharedMemory(fd, setup.places), setup)
        while True:
            answer = bench.carry_out(connection.recv())
            # What the user's code has printed: in the end this process is killed.
            print(end="", flush=True)
            connection.send(answer)


def main() -> None:
    """Run a worker; the arguments are the descriptors of its connection and of the shared memory."""
    torch.set_num_threads(1)
    # Whoever interrupts the run ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection, memory = map(int, sys.argv[1:])
    serve(Connection(connection), memory)


if __name__ == "__main__":
    main()
