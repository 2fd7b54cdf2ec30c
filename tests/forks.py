"""Processes that are forks of the tests' own, which has imported PyTorch already: each starts in no time."""

import os
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Collection
from pathlib import Path


def fork(work: Callable[[], object], kept: Collection[int] = ()) -> int:
    """Let a fork in a process group of its own do some work, and return its process's number.

    It has standard input, output and error and the descriptors in ``kept``; the others, which would keep pipes open,
    are closed.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: pytest's processes have threads
        process = os.fork()
    if process:
        return process
    code = 1
    try:
        os.setsid()
        end = 3
        for number in sorted(kept):
            os.closerange(end, number)
            end = number + 1
        os.closerange(end, 1 << 16)
        # pytest's own are closed.
        sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, closefd=False) for number in (1, 2))
        work()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class ForkedProcess:
    """A fork in the place of a ``subprocess.Popen``.

    Attributes:
        pid: Its process's number, which whoever inherits sets.
        returncode: How it ended; None if that was not asked yet.
    """

    pid: int
    returncode: int | None = None

    def poll(self) -> int | None:
        """Return how it ended; None if it has not."""
        if self.returncode is None:
            process, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if process else None
        return self.returncode

    def wait(self, timeout: float = 120.0) -> int:
        """Wait for its end."""
        end = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("a fork", timeout)
            time.sleep(0.01)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, if it has not ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL, if it has not ended."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Send SIGTERM, if it has not ended."""
        self.send_signal(signal.SIGTERM)


class Fork(ForkedProcess):
    """A fork with files for its output; warnings are errors.

    Args:
        work: What it does.
        folder: Its working folder.
        files: A folder for ``stdout`` and ``stderr``.
    """

    def __init__(self, work: Callable[[], object], folder: Path, files: Path) -> None:
        self._files = [files / "stdout", files / "stderr"]

        def begin() -> None:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            for number, path in enumerate(self._files, start=1):
                os.dup2(os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), number)
            os.chdir(folder)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            warnings.resetwarnings()
            warnings.simplefilter("error")
            work()

        self.pid = fork(begin)

    def communicate(self, timeout: float = 120.0) -> tuple[str, str]:
        """Wait for its end; return what it has written to standard output and error."""
        self.wait(timeout)
        out, err = (path.read_text(encoding="utf-8") for path in self._files)
        return out, err


def offbeat(*arguments: str) -> Callable[[], object]:
    """Return the work of ``offbeat`` with arguments."""
    from offbeat.cli.main import main

    def work() -> None:
        sys.argv = ["offbeat", *arguments]
        main()

    return work
