"""A front: bodies are its own work, decisions are the leader's.

In a server of one process it asks a ``Leader`` directly, elsewhere over a ``LeaderConnection``.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from offbeat_core import messages
from offbeat_core.digests import named_digest, new_digest
from offbeat_core.files import sync_file, sync_folder
from offbeat_core.local_plan import Compression
from pydantic import BaseModel

from offbeat.service.front.request_rate import RequestRate
from offbeat.service.internal.answers import BodyCheck, DownloadPermission
from offbeat.service.internal.leader_channel import Unsent
from offbeat.service.internal.questions import CheckIn, Download, HandIn, MayUpload, Offer, Question, supported
from offbeat.service.refusal import Refusal
from offbeat.service.store.shared_files import SharedFiles
from offbeat.service.updates.body_file import FindEntries
from offbeat.service.updates.body_form import find_entries
from offbeat.service.updates.update_body import (
    Body,
    BufferedUpdate,
    StoredUpdate,
    check_form,
    check_norm,
    largest_body,
    norm_of,
)
from offbeat.service.updates.update_header import Header, ShareHeader
from offbeat.service.updates.uploads import SMALL, CompleteBody, Uploads

_MOST_CHECKS = 2**17  # of clients whose last visit's check is kept

A = TypeVar("A", bound=BaseModel)

ModelFinder = Callable[[DownloadPermission], Awaitable[Path]]


class Asks(Protocol):
    """The way to the leader."""

    async def ask(self, question: Question[A]) -> A:
        """Return the leader's answer, or raise ``Refusal``."""
        ...


@dataclass(frozen=True, slots=True)
class Caller:
    """A client that sends a request.

    ``token`` is the SHA-256 of its token. ``trust`` is called once the leader has accepted that.
    """

    token: str
    trust: Callable[[], None]
    protocol: str | None = None
    supports: str | None = None


@dataclass(frozen=True, slots=True)
class UploadRequest:
    """A request that uploads an update or a part of one."""

    caller: Caller
    visit: int
    header: Header
    offset: int  # where in the body the part begins
    length: int  # bytes of the part
    pieces: AsyncIterator[bytes]
    check_in: bool = False  # whether the client asks for its next visit

    @property
    def is_small(self) -> bool:
        """Return whether the whole body comes at once and is to be read into memory."""
        return self.header.bytes <= SMALL and self.offset == 0 and self.length == self.header.bytes


class Front:
    """Serves clients of the run that ``leader`` leads.

    Args:
        leader: The way to the leader.
        uploads: Receives bodies.
        rate: Limits each client's requests.
        models: Finds the file of a version.
        disk_refusal: Converts an error of the disk.
        shared: Where other servers find large bodies; None if there are none.
        is_elsewhere: Whether the leader does not have the files of ``uploads``.
        is_presigned: Whether clients that can do so download models from the store of ``shared``.
    """

    def __init__(
        self,
        leader: Asks,
        uploads: Uploads,
        rate: RequestRate,
        models: ModelFinder,
        disk_refusal: Callable[[OSError], Refusal],
        shared: SharedFiles | None = None,
        *,
        is_elsewhere: bool = False,
        is_presigned: bool = False,
    ) -> None:
        self.leader = leader
        self.uploads = uploads
        self.rate = rate
        self.disk_refusal = disk_refusal
        self._shared = shared
        self.is_elsewhere = is_elsewhere
        self._presigning = shared if is_presigned else None
        self._models = models
        self._checks: OrderedDict[str, tuple[int, BodyCheck]] = OrderedDict()  # by token, of its last visit
        self._usual_check: BodyCheck | None = None

    async def ask(self, caller: Caller, question: Question[A]) -> A:
        """Return the leader's answer to a client's question."""
        answer = await self.leader.ask(question)
        caller.trust()
        return answer

    async def check_in(self, caller: Caller, wait_seconds: float) -> messages.CheckedIn:
        """Return a client's work, or when it is to check in again."""
        question = CheckIn(
            token=caller.token, wait_seconds=wait_seconds, protocol=caller.protocol, supports=caller.supports
        )
        answer = await self.leader.ask(question)
        caller.trust()
        self._remember(caller, answer.checked_in, answer.check)
        return answer.checked_in

    async def permit_download(
        self, caller: Caller, version: int, known: str | None
    ) -> tuple[DownloadPermission, str | None]:
        """Return a version for a client, and its URL in the store.

        The URL is None if this front is to send the version.
        """
        store = self._presigning if "redirects" in supported(caller.supports) else None
        is_elsewhere = self.is_elsewhere or store is not None
        found = await self.ask(
            caller, Download(token=caller.token, version=version, known=known, is_elsewhere=is_elsewhere)
        )
        try:
            return found, store and await store.model_url(found.version, found.sha256)
        except OSError as error:
            raise self.disk_refusal(error) from None

    async def model(self, found: DownloadPermission) -> Path:
        """Return the file of a version; ``Refusal`` if it is gone or cannot be reached."""
        try:
            path = await self._models(found)
            path.stat()
        except FileNotFoundError:
            raise Refusal("no-such-version", f"version {found.version} is not kept: check in for new work") from None
        except OSError as error:
            raise self.disk_refusal(error) from None
        return path

    async def upload_state(self, caller: Caller, visit: int) -> messages.UploadState:
        """Return whether an update would count, and how many bytes of it have arrived."""
        offered = await self.ask(caller, Offer(token=caller.token, visit=visit))
        if not offered.state.wanted:
            return offered.state
        return offered.state.model_copy(update={"offset": self.uploads.offset(offered.client, visit)})

    async def upload(self, request: UploadRequest) -> messages.Received | messages.Partly:
        """Receive an update or a part of one; return its receipt, or the bytes so far.

        Raises:
            Refusal: The update is refused; its beginning may be kept, and ``lost-memory`` frees the visit's slot.
        """
        try:
            return await (self._upload_small(request) if request.is_small else self._upload_large(request))
        except OSError as error:
            raise self.disk_refusal(error) from None

    async def _upload_small(self, request: UploadRequest) -> messages.Received:
        caller, header = request.caller, request.header
        visit, check = self._checks.get(caller.token, (-1, None))
        over = None
        if check is None or visit != request.visit or not _may_fit(check, header):
            permission = await self.ask(caller, MayUpload(token=caller.token, visit=request.visit, header=header))
            check, over = permission.check, permission.received
        # Also the body of an update whose visit is over, so that the connection can stay open.
        body = await self.uploads.read(caller.token, header.bytes, request.pieces)
        if over is not None or check is None:
            return _known(over)
        _check_digest(new_digest(header.digest_kind)(body).hexdigest(), header)
        update = BufferedUpdate(body, check.length, _compression(check), header.digest, check.is_masked)
        question = self._question(request, _norm(check, update))
        question.body = body  # pyright: ignore[reportAttributeAccessIssue] - as good as bytes
        return await self._hand_in(caller, question)

    async def _upload_large(self, request: UploadRequest) -> messages.Received | messages.Partly:
        caller, header = request.caller, request.header
        permission = await self.ask(caller, MayUpload(token=caller.token, visit=request.visit, header=header))
        if permission.check is None:
            return _known(permission.received)
        if request.offset + request.length > header.bytes:
            raise Refusal("too-large", f"the update was said to have {header.bytes} bytes, but more would come")
        client = permission.client
        body = await self.uploads.write(
            client,
            request.visit,
            request.offset,
            header.bytes,
            request.pieces,
            _entries_finder(permission.check, header.bytes),
            new_digest(header.digest_kind),
        )
        if isinstance(body, int):
            return messages.Partly(offset=body)
        with self.uploads.undecided(client):
            return await self._hand_in_file(request, permission.check, body)

    async def _hand_in_file(self, request: UploadRequest, check: BodyCheck, body: CompleteBody) -> messages.Received:
        is_asked = False
        try:
            _check_digest(body.digest, request.header)
            update = StoredUpdate(
                body.path,
                request.header.bytes,
                check.length,
                _compression(check),
                request.header.digest,
                check.is_masked,
            )
            norm = await asyncio.to_thread(_check_and_sync, check, update, body.norm)
            if self._shared is not None:
                await self._shared.upload(body.path, f"updates/{body.path.name}")
            is_asked = True
            return await self._hand_in(request.caller, self._question(request, norm, body.path))
        except Unsent:
            is_asked = False
            raise
        finally:
            if self.is_elsewhere or not is_asked:  # the leader deletes its own files
                body.path.unlink(missing_ok=True)

    def _question(self, request: UploadRequest, norm: float | None, file: Path | None = None) -> HandIn:
        caller = request.caller
        return HandIn(
            token=caller.token,
            visit=request.visit,
            header=request.header,
            norm=norm,
            blob=None if file is None else file.name,
            check_in=request.check_in,
            protocol=caller.protocol,
            supports=caller.supports,
        )

    async def _hand_in(self, caller: Caller, question: HandIn) -> messages.Received:
        answer = await self.leader.ask(question)
        caller.trust()
        if answer.received.next is not None:
            self._remember(caller, answer.received.next, answer.check)
        return answer.received

    def _remember(self, caller: Caller, checked_in: messages.CheckedIn, check: BodyCheck | None) -> None:
        """Keep the check of a visit, which saves a question before its update."""
        if checked_in.visit is None or check is None:
            return
        usual = self._usual_check  # one object for most clients, since their checks are equal
        self._usual_check = check = usual if usual is not None and usual == check else check
        self._checks[caller.token] = checked_in.visit.number, check
        self._checks.move_to_end(caller.token)
        if len(self._checks) > _MOST_CHECKS:
            self._checks.popitem(last=False)


def _may_fit(check: BodyCheck, header: Header) -> bool:
    """Return whether a header may belong to a body that passes the check.

    If not, the leader says what is wrong.
    """
    if isinstance(header, ShareHeader) or check.is_masked:
        return isinstance(header, ShareHeader) and check.is_masked and header.bytes == 4 * check.length
    return header.bytes <= largest_body(check.length, _compression(check))


def _entries_finder(check: BodyCheck, size: int) -> FindEntries:
    if not check.values or check.compression is not None:
        return lambda _: None
    return partial(find_entries, size=size, length=check.length)


def _norm(check: BodyCheck, update: Body, known: float | None = None) -> float | None:
    """Check a body; return its norm, None if that must not be known.

    It is ``known`` if it was made while the body arrived.
    """
    if check.values:
        norm = norm_of(update) if known is None else known
        check_norm(norm, None)
        return norm
    if not check.is_masked:
        check_form(update)
    return None


def _check_and_sync(check: BodyCheck, update: StoredUpdate, known: float | None) -> float | None:
    """Check a large body while the disk writes it; return its norm once it is on disk."""
    norm = _norm(check, update, known)
    sync_file(update.path)
    sync_folder(update.path.parent)
    return norm


def _compression(check: BodyCheck) -> Compression | None:
    found = check.compression
    return found and Compression(found.name, tuple(found.parameters.items()))


def _check_digest(digits: str, header: Header) -> None:
    if named_digest(header.digest_kind, digits) != header.digest:
        raise Refusal("wrong-digest", "the body has another digest than was announced: upload it again from the start")


def _known(received: messages.Received | None) -> messages.Received:
    assert received is not None, "the leader permits an update, or knows what became of it"
    return received
