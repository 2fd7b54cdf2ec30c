"""The cost of the connection between fronts and leader.

``python benchmarks/internal_connection.py [QUESTIONS]`` asks so many questions (20,000) over a Unix socket, 1, 8 and 64
at a time, with an empty handler, and prints the processor time per question of either end; medians of 5 runs. The
questions are check-ins, and updates of 31 kB with a next visit in the answer.
"""

import asyncio
import multiprocessing
import statistics
import sys
import tempfile
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import uvloop
from offbeat_core.messages import CheckedIn, PlanMessage, ReceiptMessage, Received, VisitMessage
from pydantic import BaseModel

from offbeat.service.internal.answers import BodyCheck, CheckInAnswer, HandInAnswer
from offbeat.service.internal.front_endpoint import FrontEndpoint
from offbeat.service.internal.leader_connection import LeaderConnection
from offbeat.service.internal.questions import CheckIn, HandIn, Question
from offbeat.service.updates.update_header import UpdateHeader

RUN = "0" * 16
RUNS = 5
DIGEST = "a" * 64
VISIT = VisitMessage(
    number=1,
    version=3,
    model_sha256=DIGEST,
    since=None,
    payload="delta",
    length=7000,
    seed=0,
    plan=PlanMessage(steps=10, batch_size=10, lr=0.1),
    lease_seconds=60.0,
    urgent=False,
)
NO_WORK = CheckInAnswer(checked_in=CheckedIn(visit=None, retry_after_seconds=5.0, finished=False), check=None)
NEXT = CheckedIn(visit=VISIT, retry_after_seconds=None, finished=False)
RECEIPT = ReceiptMessage(counted=True, staleness=1, new_version=False)
RECEIVED = HandInAnswer(
    received=Received(receipt=RECEIPT, next=NEXT, audit_head=f"12:{DIGEST}"),
    check=BodyCheck(length=7000, compression=None, is_masked=False, values=True),
)
HEADER = UpdateHeader(
    version=3,
    bytes=31_000,
    sha256=DIGEST,
    model_sha256=DIGEST,
    examples=100,
    steps=10,
    normaliser=10.0,
    since=None,
    step_seconds=0.1,
    upload_seconds=0.1,
)
QUESTIONS: dict[str, Question[Any]] = {
    "check-in": CheckIn(token=DIGEST, protocol="1.0", supports="evaluate"),
    "31 kB update": HandIn(token=DIGEST, visit=1, header=HEADER, norm=1.0, check_in=True, body=bytes(31_000)),
}


def lead(path: Path, times: Connection) -> None:
    """Answer questions, and send this process's processor time when asked."""

    async def answer(question: Question[Any]) -> BaseModel:
        return NO_WORK if isinstance(question, CheckIn) else RECEIVED

    async def main() -> None:
        endpoint = FrontEndpoint(RUN, answer)
        endpoint.lead(1)
        await endpoint.listen(path)
        asyncio.get_running_loop().add_reader(times.fileno(), lambda: (times.recv(), times.send(time.process_time())))
        await asyncio.Event().wait()

    uvloop.run(main())


async def measure(path: Path, times: Connection, number: int) -> None:
    """Print a row for each kind of question and batch."""
    connection = LeaderConnection([path])
    keeping = asyncio.create_task(connection.run())
    await connection.found.wait()

    def leader_time() -> float:
        times.send(None)
        return times.recv()

    async def ask(question: Question[Any], count: int) -> None:
        for _ in range(count):
            await connection.ask(question)

    print(f"{'question':14}{'at once':>8}{'leader µs':>22}{'front µs':>22}")
    for name, question in QUESTIONS.items():
        for batch in (1, 8, 64):
            leader, front = [], []
            for _ in range(RUNS):
                count = number // RUNS // batch
                began, leader_began = time.process_time(), leader_time()
                await asyncio.gather(*(ask(question, count) for _ in range(batch)))
                leader.append((leader_time() - leader_began) / count / batch * 1e6)
                front.append((time.process_time() - began) / count / batch * 1e6)
            columns = [f"{statistics.median(row):.1f} ({min(row):.1f}–{max(row):.1f})" for row in (leader, front)]
            print(f"{name:14}{batch:8}{columns[0]:>22}{columns[1]:>22}")
    keeping.cancel()
    with suppress(asyncio.CancelledError):
        await keeping


def main() -> None:
    """Run both ends."""
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    ours, theirs = multiprocessing.Pipe()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "leader.sock"
        leader = multiprocessing.Process(target=lead, args=(path, theirs), daemon=True)
        leader.start()
        uvloop.run(measure(path, ours, number))
        leader.terminate()
        leader.join()


if __name__ == "__main__":
    main()
