"""The life of a server.

Start: lock and open the folder, compare its configuration, bind the socket, load the checkpoint, replay the log's later
rows, write a new checkpoint, then answer requests.

Stop, by a signal or a failure: hand out no more work, let requests under way end (ten seconds at most), write a
checkpoint, close the log, release the folder.
"""

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from offbeat_core.errors import OffbeatError
from offbeat_core.files import write_durably
from offbeat_core.serving.connections import Connections
from offbeat_core.serving.console_log import event
from offbeat_core.serving.http_server import HttpServer, listen, max_connections, raise_file_limit
from sqlalchemy import exc

from offbeat.coordinator import Coordinator
from offbeat.service.accounts.accounts import Accounts
from offbeat.service.accounts.issued_tokens import IN_FOLDER
from offbeat.service.accounts.registry import Kind
from offbeat.service.audit.audit_log import AuditLog, start_facts
from offbeat.service.blobs.check_blobs import check
from offbeat.service.engine.engine import Engine
from offbeat.service.engine.erasure import Erasure
from offbeat.service.engine.evaluation_queue import EvaluationQueue
from offbeat.service.engine.leader import Leader
from offbeat.service.engine.lease_timer import LeaseTimer
from offbeat.service.engine.operations import Operations
from offbeat.service.engine.server_checkpoint import CheckpointSchedule, CheckpointWriter
from offbeat.service.engine.start_up import open_engine
from offbeat.service.front.front import Front
from offbeat.service.front.request_rate import RequestRate
from offbeat.service.http.http_app import make_app
from offbeat.service.internal.answers import DownloadPermission
from offbeat.service.log.log import LogUnavailableError
from offbeat.service.masked.sum_opener import SumOpener
from offbeat.service.refusal import Refusal
from offbeat.service.server.addresses import local_host, public_host, write_address
from offbeat.service.server.common_end import GRACE_SECONDS, CommonEnd, unless_stopped
from offbeat.service.server.fronts import Fronts
from offbeat.service.server_settings import ServerSettings
from offbeat.service.store.disk import UnreachableFilesError
from offbeat.service.store.model_files import Layout, ModelFiles
from offbeat.service.store.store import Store
from offbeat.service.updates.uploads import Uploads

_TRIES = 20
_PAUSE_SECONDS = 0.1  # between two tries to listen
_MIN_MODELS = 16  # a checkpoint is due by size after updates of at least so many models


@dataclass(frozen=True)
class Listening:
    """A server that listens."""

    url: str  # for programs on this machine
    public_url: str  # for clients
    enrolment_token: str  # that in the server's folder
    service: Operations
    front: Front  # in this process
    fronts: Fronts  # in others
    checkpoints: CheckpointWriter


async def serve(
    settings: ServerSettings,
    coordinator: Coordinator,
    layout: Layout,
    *,
    ready: Callable[[Listening], None],
    stop: asyncio.Event,
) -> None:
    """Run a server until ``stop`` is set; call ``ready`` once it listens.

    At the end the server finishes the requests under way, and writes a checkpoint. The coordinator is a fresh one.
    """
    end, limit = CommonEnd(), max_connections(raise_file_limit())
    with (
        _private_files(),
        _disk_errors(settings.folder, end),
        closing(Store(settings.folder, end.set, settings.store)) as store,
        ExitStack() as listening,
    ):
        if store.shared is None:
            listener = listening.enter_context(await _listen_patiently(settings))
        else:
            await check(store.shared.blobs)
            listener = None  # a server that stands by refuses connections, so that a balancer turns to the leader
        opened = await unless_stopped(open_engine(store, coordinator, layout, settings, end.set), stop)
        if opened is None:
            return
        engine, checkpoints = opened
        try:
            if listener is None:
                listener = listening.enter_context(await _listen_patiently(settings))
            service = await _open_service(settings, engine)
            await _folder_token(store, service, "admin")
            token = await _folder_token(store, service, "enrolment")
            async with _sending_messages(settings, engine), _evaluating(settings, engine):
                await _serve(settings, service, checkpoints, listener, limit, token, ready, end, stop)
        finally:
            await engine.close()


async def _listen_patiently(settings: ServerSettings) -> socket.socket:
    """Return the socket for clients.

    The fronts of a killed leader hold it until they notice, for a moment.
    """
    for _ in range(_TRIES if settings.front_processes else 0):
        with suppress(OffbeatError):
            return listen(settings.service.host, settings.service.port)
        await asyncio.sleep(_PAUSE_SECONDS)
    return listen(settings.service.host, settings.service.port)


async def _serve(
    settings: ServerSettings,
    service: Operations,
    checkpoints: CheckpointWriter,
    listener: socket.socket,
    limit: int,
    enrolment_token: str,
    ready: Callable[[Listening], None],
    end: CommonEnd,
    stop: asyncio.Event,
) -> None:
    """Answer requests until ``stop`` is set or a task fails."""
    engine, port = service.engine, listener.getsockname()[1]
    scheme = "https" if settings.certificates else "http"
    url = f"{scheme}://{local_host(settings.service.host)}:{port}"
    public_url = f"{scheme}://{public_host(settings.service.host, settings.service.hosts)}:{port}"
    connections = Connections(port, min(settings.service.connections_per_address or limit // 4, limit))
    leader = Leader(service)
    front = Front(
        leader,
        Uploads(settings.folder, settings.upload_budget),
        RequestRate(settings.service.requests_a_second, settings.burst),
        partial(_model_file, engine.models),
        engine.disk.refusal,
        engine.shared,
        is_presigned=settings.store is not None and settings.store.presigned,
    )
    service.erasure = Erasure(engine, service.accounts, checkpoints, front.uploads, settings.folder)
    app = make_app(service, front, connections, public_url)
    fronts = Fronts(service, leader, app, settings, listener)
    http = None if settings.front_processes else HttpServer(app, connections, listener, settings.certificates, limit)
    schedule = CheckpointSchedule(
        engine,
        checkpoints,
        seconds=settings.service.checkpoint_seconds,
        max_bytes=max(settings.checkpoint_bytes, _MIN_MODELS * 4 * engine.models.length),
    )
    timer, opener = LeaseTimer(engine), None
    if settings.privacy is not None and settings.privacy.helper is not None:
        opener = SumOpener(engine, settings.privacy.helper, settings.folder / "updates")
    serving = None if http is None else end.start(http.serve())
    for work in (timer.run(), connections.keep_watch(), schedule.run(), stop.wait()):
        end.start(work)
    end.start(service.accounts.audit.flush_regularly())
    end.start(service.erasure.run())
    end.start(service.progress.run())
    if engine.run.best is not None:
        end.start(engine.run.best.run())
    if opener is not None:
        end.start(opener.run())
    if settings.front_processes or settings.fronts is not None:
        end.start(fronts.run())
    try:
        write_address(settings.folder, url, settings.certificates and settings.certificates.certificate)
        event("ready", url=public_url, version=engine.coordinator.algorithm.version)
        ready(Listening(url, public_url, enrolment_token, service, front, fronts, checkpoints))
        await end.wait()
    finally:
        service.is_ready = False
        engine.stop()
        if http is not None and serving is not None:
            await http.close(serving, GRACE_SECONDS)
        await fronts.close()
        await end.cancel()
        service.accounts.audit.flush()
        service.accounts.audit.add("server stopped")
        with suppress(OSError, Refusal):
            await checkpoints.write()


async def _model_file(models: ModelFiles, found: DownloadPermission) -> Path:
    return models.path(found.version)


async def _open_service(settings: ServerSettings, engine: Engine) -> Operations:
    audit = AuditLog(engine.log_writer, engine.state)
    accounts = Accounts(
        engine.state.registry,
        engine.log_writer,
        audit,
        clients_limit=engine.coordinator.clients,
        token_seconds=settings.service.token_seconds,
        max_examples=settings.service.max_examples,
        keeps_examples=settings.privacy is None,
    )
    audit.add("server started", run=engine.run.state.run_id, **start_facts(settings))
    service = Operations(engine, accounts, settings)
    await service.weigh_clients()  # in case the last server ended just before
    return service


async def _folder_token(store: Store, service: Operations, kind: Kind) -> str:
    """Return the token in the folder's file, new if need be; revoke all others.

    Where several servers share the log, each has a file of its own, and none is revoked.
    """
    path, accounts, log_writer = store.folder / f"{kind}-token", service.accounts, service.engine.log_writer
    token = None
    with suppress(FileNotFoundError, ValueError):
        found = path.read_text(encoding="ascii").strip()
        token = found if accounts.is_valid(found, kind) else None
    if store.shared is None:
        accounts.issued.keep_in_folder(kind, token)
    if token is None:
        token = accounts.issued.make(kind, name=IN_FOLDER)
        await log_writer.wait_until_durable()
        write_durably(path, f"{token}\n".encode("ascii"), mode=0o600)
    await log_writer.wait_until_durable()
    return token


@asynccontextmanager
async def _evaluating(settings: ServerSettings, engine: Engine) -> AsyncGenerator[None]:
    """Evaluate versions within the context, also the newest of an earlier server."""
    if settings.evaluate_every is None or not settings.evaluate_command:
        yield
        return
    evaluations = engine.publisher.evaluations = EvaluationQueue(
        settings.folder,
        engine.models,
        engine.log_writer.wait_until_durable,
        settings.evaluate_every,
        settings.evaluate_command,
        engine.run.note_evaluation,
    )
    newest = engine.coordinator.algorithm.version
    if evaluations.lacks(newest):
        with suppress(OSError, Refusal):  # a full disk must not keep the server from its start
            await engine.publisher.publish()
            evaluations.add(newest)
    async with _beside(evaluations.run()):
        yield


@asynccontextmanager
async def _sending_messages(settings: ServerSettings, engine: Engine) -> AsyncGenerator[None]:
    """Send messages about events within the context, if there is a webhook."""
    if settings.webhook is None:
        yield
        return
    from offbeat.service.webhook.webhook import Webhook  # with an HTTP client, which servers do without

    webhook = Webhook(settings.webhook, str(engine.run.state.run_id))
    with webhook.attached():
        async with _beside(webhook.run()):
            yield


@asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncGenerator[None]:
    """Do work that never ends beside what is done within the context."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextmanager
def _private_files() -> Generator[None]:
    """Let others read nothing that is written within the context."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def _disk_errors(folder: Path, end: CommonEnd) -> Generator[None]:
    """Report failures of the disk and of the log in one line."""
    try:
        yield
    except UnreachableFilesError as error:
        raise OffbeatError(
            f"the store of large files cannot be used: {error}; start the server again once it can"
        ) from error
    except OSError as error:
        raise OffbeatError(
            f"the server's disk cannot be used: {error.strerror or error}: {error.filename or folder}"
        ) from error
    except LogUnavailableError as error:
        raise OffbeatError(f"the log cannot be used: {error}; start the server again once it can") from error
    except exc.DatabaseError as error:
        raise OffbeatError(f"the server's database cannot be used: {error.orig}: {folder}") from error
    except Refusal as refusal:
        if isinstance(end.error, OffbeatError):  # another server leads
            raise end.error from None
        problem = refusal if end.error is None else f"the server's disk cannot be used: {end.error}"
        raise OffbeatError(f"{problem}: {folder}") from refusal
