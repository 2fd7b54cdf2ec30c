"""Opens batches of a folder until it is killed, again and again.

Run as a program. For each line of standard input, ``seed answers seconds``, a child is forked, so that nothing has to
be imported again; it is killed so many seconds after so many answers. Each batch is written to
``requests`` beside the folder before it is opened, as a server does, and each answer's digest to ``answered``.
"""

import hashlib
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from random import Random

from offbeat_core.files import write_durably
from offbeat_private.helper.helper import Helper
from offbeat_private.helper.helper_refusal import HelperRefusal
from offbeat_private.masks.envelope import RECORD_BYTES

from tests.offbeat_private.helper.conftest import CLIENTS, records_for


def work(folder: Path, chance: Random, tick: int) -> None:
    """Open one batch after the other; sometimes another one than before the last kill."""
    requests = folder.with_name("requests")
    requests.mkdir(exist_ok=True)
    with folder.with_name("answered").open("a", buffering=1, encoding="ascii") as answered:
        helper = Helper(folder)
        number = helper.facts().head.number  # the server may have missed the last answer
        while True:
            for asked in sorted(requests.glob(f"{number}-*")):
                content = asked.read_bytes()
                records = [content[begin : begin + RECORD_BYTES] for begin in range(0, len(content), RECORD_BYTES)]
                chance.shuffle(records)
                try:
                    answer = helper.open(number, records)
                except HelperRefusal as refusal:
                    if refusal.kind != "other-batch":
                        raise
                    continue
                answered.write(f"{asked.name} {hashlib.sha256(answer.path.read_bytes()).hexdigest()}\n")
                os.write(tick, b".")
            number = helper.facts().head.number + 1
            first = chance.randrange(CLIENTS)
            visits = {(first + client) % CLIENTS: number for client in range(3)}
            name = f"{number}-{chance.randrange(10**9)}-{first}"
            write_durably(requests / name, b"".join(records_for(helper, visits)))


def main(folder: Path) -> None:
    for line in sys.stdin:
        seed, answers, seconds = line.split()
        ticked, tick = os.pipe()
        child = os.fork()
        if not child:
            try:
                work(folder, Random(int(seed)), tick)
            finally:
                traceback.print_exc()
                os._exit(1)
        os.close(tick)
        for _ in range(int(answers)):
            os.read(ticked, 1)
        time.sleep(float(seconds))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        os.close(ticked)
        print(os.WTERMSIG(status) if os.WIFSIGNALED(status) else "ended", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
