"""Commands of ``offbeat`` as forks of a process that has imported all: each starts in no time, and can be killed."""

import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import IO

from offbeat_private.helper import helper_server

from offbeat.cli.demo import client
from offbeat.cli.main import main
from offbeat.service.server import serving
from offbeat.worlds import serve
from tests.forks import ForkedProcess

__all__ = ["client", "helper_server", "serve", "serving"]  # imported before the forks

DEVNULL, STDOUT, TimeoutExpired = subprocess.DEVNULL, subprocess.STDOUT, subprocess.TimeoutExpired


class Popen(ForkedProcess):
    """Takes the place of ``subprocess.Popen`` for ``python -m offbeat`` with a log file; this module, of its module."""

    def __init__(
        self, command: Sequence[str], *, stdin: int, stdout: IO[bytes], stderr: int, env: Mapping[str, str]
    ) -> None:
        assert list(command[:3]) == [sys.executable, "-m", "offbeat"]
        assert (stdin, stderr) == (DEVNULL, STDOUT)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                _run(command[3:], stdout, env)
            finally:
                os._exit(1)


def _run(arguments: Sequence[str], output: IO[bytes], environment: Mapping[str, str]) -> None:
    """Run a command in a new process, and end it."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number in (1, 2):
        os.dup2(output.fileno(), number)
    os.environ.update(environment)
    sys.argv = ["offbeat", *arguments]
    code = 1
    try:
        main()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
