"""Starts servers in no time: all is imported once, and each server is a fork, a process of its own to be killed.

Run as a program: a line of standard input that is a JSON list holds the arguments of ``offbeat serve``, and the answer
is the new process's number; ``null`` waits until it is gone, and the answer is how it ended. The server's output goes
to this program's standard error. At the end of the input a server that still runs is killed. An argument, if there is
one, says when clients for which there is no work are to come back, in seconds.
"""

import json
import os
import signal
import sys

from offbeat.cli import main as cli
from offbeat.service.engine import service
from offbeat.service.server import serving as server
from offbeat.worlds import serve as serving

__all__ = ["server", "serving"]


def main() -> None:
    if len(sys.argv) > 1:
        service.RETRY_SECONDS = float(sys.argv[1])
    child = 0
    for line in sys.stdin:
        arguments = json.loads(line)
        if arguments is None:
            # Not before all its threads are gone, and with them what they hold.
            print(os.waitpid(child, 0)[1], flush=True)
            child = 0
            continue
        child = os.fork()
        if child == 0:
            os.dup2(2, 1)
            sys.argv = ["offbeat", "serve", *arguments]
            cli.main()
        print(child, flush=True)
    if child:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
