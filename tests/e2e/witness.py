"""Sees what passes between clients and a server, and says when somebody may be killed."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum

from offbeat.coordinator import Receipt
from tests.e2e.http_message import Answer, Request
from tests.e2e.read_history import ReadHistory

# What a client may hear of a server that works; 503 is of one that is being stopped.
_EXPECTED = {200, 201, 202, 204, 206, 404, 409, 503}
# Nobody asks for a visit that never was, or has another update for one: unless a server or a client has forgotten.
_UNEXPECTED = {"no-such-visit", "other-upload"}


class Moment(Enum):
    """A moment at which to kill a process."""

    IN_MID_UPLOAD = "the server has half of an update"
    IN_MID_DOWNLOAD = "the client has half of a model"
    RECEIPT_SENT = "the server has sent a receipt, which the client has not heard of"
    WORK_SENT = "the server has sent work, which the client has not heard of"
    RECEIPT_HEARD = "the client has heard of a receipt, and perhaps noted it"


@dataclass
class _Awaited:
    """An action to take at a moment, on the client that it concerns."""

    moment: Moment
    do: Callable[[int], None]
    client: Future[int]


class Witness:
    """The traffic that the proxy has seen.

    Attributes:
        told: Receipts by client and visit that the server has sent while the client might have heard them.
        reads: What was downloaded.
        problems: Answers that should not be.
    """

    def __init__(self) -> None:
        self.told: dict[tuple[int, int], Receipt] = {}
        self.reads = ReadHistory()
        self.problems: list[str] = []
        self._clients: dict[str, int] = {}  # by token
        self._awaited: _Awaited | None = None

    def at(self, moment: Moment, do: Callable[[int], None]) -> int:
        """Do something at the next such moment, before anything else is passed on; return the client."""
        awaited = self._awaited = _Awaited(moment, do, Future())
        return awaited.client.result(120)

    def awaits(self, moment: Moment) -> bool:
        return self._awaited is not None and self._awaited.moment is moment

    def is_now(self, moment: Moment, request: Request) -> bool:
        """Do what is to be done at a moment; return whether there was anything."""
        awaited = self._awaited
        if awaited is None or awaited.moment is not moment:
            return False
        self._awaited = None
        client = self._clients[request.token]
        try:
            awaited.do(client)
        except BaseException as error:
            awaited.client.set_exception(error)
        else:
            awaited.client.set_result(client)
        return True

    def note(self, request: Request, answer: Answer) -> None:
        """Note what the server says to somebody who may hear it."""
        if not self.check(request, answer):
            return
        if request.kind == "download":
            self.reads.add(request.number, answer)
        if request.kind == "enrol":
            self._clients[answer.value["token"]] = answer.value["client"]
        if answer.gives_work:
            self.is_now(Moment.WORK_SENT, request)
        said = answer.receipt
        if said is not None and said.counted is not None:  # else it is of a visit that nobody remembers
            self.is_now(Moment.RECEIPT_SENT, request)
            which = self._clients[request.token], request.number
            before = self.told.setdefault(which, said)
            # The staleness of an update that did not count is forgotten after a while.
            if said != before and (said.counted or before.counted):
                self.problems.append(f"client, visit {which}: first {before}, then {said}")

    def check(self, request: Request, answer: Answer) -> bool:
        """Return whether an answer is a good one; note it if it should not be."""
        is_refusal = answer.status >= 400
        if answer.status not in _EXPECTED or (is_refusal and answer.value["kind"] in _UNEXPECTED):
            self.problems.append(f"{request.kind}: {answer.status} {answer.text}")
        return not is_refusal
