"""Workers of the trainer of several processes as forks of the tests' process, which has imported PyTorch already."""

import os
import signal
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

import pytest

from offbeat.training.trainers.distributed import worker
from offbeat.training.worker_process import begin_work
from tests.forks import fork


class _Popen:
    """Takes the place of ``subprocess.Popen`` for a worker."""

    def __init__(self, command: Sequence[str], *, pass_fds: tuple[int, int], **_: Any) -> None:
        assert list(command) == [sys.executable, "-P", "-m", worker.__name__, *map(str, pass_fds)]

        def work() -> None:
            begin_work()
            worker.serve(Connection(pass_fds[0]), pass_fds[1])

        self.pid = fork(work, pass_fds)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@contextmanager
def forked_workers() -> Generator[None]:
    """Let workers be forks; what an own process lacks of this one is for ``test_real_processes.py``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "subprocess", SimpleNamespace(Popen=_Popen, DEVNULL=None))
        yield
