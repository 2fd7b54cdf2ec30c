"""Requests and answers of HTTP/1.1 as far as a proxy has to know them."""

import asyncio
import json
import re
from dataclasses import dataclass
from typing import Any, Self

from offbeat.coordinator import Receipt

_KINDS = {
    r"POST /v1/enrol": "enrol",
    r"POST /v1/examples": "declare",
    r"(GET|PUT|POST) /v1/probe": "probe",
    r"POST /v1/checkin": "check-in",
    r"GET /v1/models/\d+": "download",
    r"GET /v1/uploads/\d+": "ask",
    r"PUT /v1/uploads/\d+(\?checkin=true)?": "upload",
    r"POST /v1/visits/\d+/heartbeat": "heartbeat",
    r"POST /v1/visits/\d+/give-up": "give-up",
}


@dataclass(frozen=True, eq=False)
class Request:
    """A request, perhaps without the end of its body."""

    head: bytes
    body: bytes
    length: int  # of the whole body

    @classmethod
    async def read(cls, reader: asyncio.StreamReader) -> Self | None:
        """Return what a client asks; None if it has hung up."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        length = int(header(head, "Content-Length") or 0)
        try:
            return cls(head, await reader.readexactly(length), length)
        except asyncio.IncompleteReadError as error:
            return cls(head, error.partial, length)

    @property
    def is_whole(self) -> bool:
        return len(self.body) == self.length

    @property
    def kind(self) -> str:
        """The request's kind; ``rest`` is an upload that resumes an interrupted one."""
        line = self.head.partition(b" HTTP/")[0].decode()
        kind = next((kind for pattern, kind in _KINDS.items() if re.fullmatch(pattern, line)), "other")
        return "rest" if kind == "upload" and header(self.head, "Upload-Offset") != "0" else kind

    @property
    def number(self) -> int:
        """The visit's, in a request that is about one."""
        found = re.search(rb"/(\d+)[ /?]", self.head)
        assert found is not None
        return int(found[1])

    @property
    def token(self) -> str:
        return (header(self.head, "Authorization") or "").removeprefix("Bearer ")

    def beginning(self, share: float) -> bytes:
        """Return so much of its body, or of its head if it has no body."""
        if not self.length:
            return self.head[: int(share * len(self.head))]
        return self._last_of_its_line() + self.body[: int(share * self.length)]

    def whole(self) -> bytes:
        """Return all that is there, for a line that ends with the answer."""
        return self._last_of_its_line() + self.body

    def _last_of_its_line(self) -> bytes:
        return _without_connection(self.head)[:-2] + b"Connection: close\r\n\r\n"


@dataclass(frozen=True, eq=False)
class Answer:
    """An answer, perhaps without its end."""

    data: bytes

    def beginning(self, share: float) -> "Answer":
        """Return so much of it."""
        return Answer(self.data[: int(share * len(self.data))])

    @property
    def is_whole(self) -> bool:
        head, found, body = self.data.partition(b"\r\n\r\n")
        if not found:
            return False
        return len(body) == int(header(head, "Content-Length") or 0)

    @property
    def status(self) -> int:
        return int(self.data.split(maxsplit=2)[1])

    @property
    def body(self) -> bytes:
        return self.data.partition(b"\r\n\r\n")[2]

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")

    @property
    def value(self) -> Any:
        return json.loads(self.text)

    @property
    def gives_work(self) -> bool:
        """True if the answer holds a visit.

        It does in answer to a check-in, or to an upload that is a check-in too.
        """
        if not self._is_json:
            return False
        return bool(self.value.get("visit") or (self.value.get("next") or {}).get("visit"))

    @property
    def receipt(self) -> Receipt | None:
        """The receipt in the answer, if it has one."""
        receipt = self.value.get("receipt") if self._is_json else None
        return None if receipt is None else Receipt(**receipt)

    @property
    def _is_json(self) -> bool:
        return self.is_whole and self.status == 200 and header(self.data, "Content-Type") == "application/json"

    def for_a_line_that_stays(self) -> bytes:
        return _without_connection(self.data)


def header(head: bytes, name: str) -> str | None:
    found = re.search(rb"\r\n" + name.encode() + rb": *([^\r]*)", head, re.IGNORECASE)
    return found and found[1].decode()


def _without_connection(data: bytes) -> bytes:
    head, end, rest = data.partition(b"\r\n\r\n")
    return re.sub(rb"\r\nConnection: *[^\r]*", b"", head, flags=re.IGNORECASE) + end + rest
