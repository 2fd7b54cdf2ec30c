"""The aggregation server's connection to its helper."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Annotated, Self

import httpx
import numpy as np
from offbeat_core.errors import OffbeatError
from offbeat_core.http.proxy import client_through, proxy_of, unreachable
from offbeat_core.http.service_errors import UnreachableError, is_foreign, one_line, other_program
from offbeat_core.http.tls import tls_problem, trust
from offbeat_private.masks.helper_facts import HEAD_HEADER, SIGNATURE_HEADER, Head
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from offbeat.service.masked.helper_protocol import HelperAnswer, HelperFacts, HelperRefusedError

_CA = "service.helper_ca"
_CONNECT_SECONDS = 10.0
_READ_SECONDS = 600.0  # a batch of large masks with noise of many bands takes minutes
_LARGEST_PROBLEM = 2**16

_Hex16 = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
_Hex32 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_Hex64 = Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]
_Hex100 = Annotated[str, Field(pattern=r"^[0-9a-f]{200}$")]


class _Facts(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    run: _Hex16
    terms: _Hex32
    epoch: Annotated[int, Field(ge=0, lt=2**32)]
    epoch_key: _Hex100
    counter: Annotated[int, Field(ge=0, lt=2**63)]
    head: _Hex32
    head_signature: _Hex64


class _Problem(BaseModel):
    kind: str = ""
    detail: str = ""
    client: _Hex32 | None = None


class HelperConnection:
    """Requests to one helper, a ``MaskHelper``.

    Args:
        url: The helper's address.
        token: The token that ``offbeat-helper enrol`` printed.
        ca: A file with the certificates to trust; None for those of the system.
        length: d, the words of an answer.
    """

    def __init__(self, url: str, token: str, ca: Path | None, length: int) -> None:
        self.url = url.rstrip("/")
        self._length = length
        self._proxy = proxy_of(url)
        self._http = client_through(
            self._proxy,
            verify=trust(ca, _CA),
            headers={"Authorization": f"Bearer {token}", "Accept-Encoding": "identity"},
            timeout=httpx.Timeout(_READ_SECONDS, connect=_CONNECT_SECONDS),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._http.close()

    def facts(self) -> HelperFacts:
        """Return the helper's state."""
        with self._stream("GET", "/v1/helper") as response:
            content = _read(response, _LARGEST_PROBLEM)
        try:
            facts = _Facts.model_validate_json(content)
        except ValidationError:
            remedy = other_program(response, content)
            raise OffbeatError(f"{self.url} did not answer as a helper does: {remedy}") from None
        return HelperFacts(
            bytes.fromhex(facts.run),
            bytes.fromhex(facts.terms),
            facts.epoch,
            bytes.fromhex(facts.epoch_key),
            Head(facts.counter, bytes.fromhex(facts.head)),
            bytes.fromhex(facts.head_signature),
        )

    def open(self, number: int, records: Sequence[bytes]) -> HelperAnswer:
        """Return the answer to a batch of share records."""
        with self._stream("POST", f"/v1/batches/{number}", b"".join(records)) as response:
            content = _read(response, 4 * self._length)
            head, signature = _head(response)
        if len(content) != 4 * self._length or head.number != number:
            raise UnreachableError(f"{self.url} sent {len(content)} bytes for batch {number}: ask again")
        return HelperAnswer(np.frombuffer(content, "<u4").astype(np.uint32, copy=False), head, signature)

    @contextmanager
    def _stream(self, method: str, path: str, content: bytes | None = None) -> Generator[httpx.Response]:
        try:
            with self._http.stream(method, self.url + path, content=content) as response:
                if not response.is_success:
                    raise self._error(response)
                yield response
        except httpx.TransportError as error:
            problem = tls_problem(self.url, error, may_probe=False, setting=_CA)
            raise UnreachableError(problem or str(unreachable(self.url, error, self._proxy))) from error

    def _error(self, response: httpx.Response) -> OffbeatError:
        content = _read(response, _LARGEST_PROBLEM)
        try:
            problem = _Problem.model_validate_json(content)
        except ValidationError:  # a proxy's
            problem = _Problem()
        detail = one_line(" ".join(problem.detail.split())) or response.reason_phrase
        if is_foreign(response, content):
            detail = f"{detail}, not a helper's answer: {other_program(response, content)}"
        if response.is_server_error:
            return UnreachableError(f"{self.url} cannot serve now: {detail} ({response.status_code})")
        return HelperRefusedError(problem.kind, detail, bytes.fromhex(problem.client) if problem.client else None)


def _read(response: httpx.Response, largest: int) -> bytearray:
    content = bytearray()
    for part in response.iter_raw():
        content += part
        if len(content) > largest:
            raise UnreachableError(f"{response.url} sent more than {largest} bytes: ask again")
    return content


def _head(response: httpx.Response) -> tuple[Head, bytes]:
    number, _, digest = response.headers.get(HEAD_HEADER, "").partition(":")
    try:
        head, signature = Head(int(number), bytes.fromhex(digest)), bytes.fromhex(response.headers[SIGNATURE_HEADER])
    except (KeyError, ValueError):
        raise OffbeatError(f"{response.url} did not answer as a helper does: check the URL") from None
    return head, signature
