"""The life of a server.

Start: lock and open the folder, compare its configuration, bind the socket, load the checkpoint, replay the log's later
records, write a new checkpoint, then answer requests.

Stop, by a signal or a failure: hand out no more work, let requests under way end (ten seconds at most), write a
checkpoint, close the log, release the folder.
"""

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from offbeat_core.errors import OffbeatError
from offbeat_core.files import write_durably
from offbeat_core.serving.connections import Connections
from offbeat_core.serving.http_server import HttpServer, listen, max_connections, raise_file_limit
from sqlalchemy import exc

from offbeat.coordinator import Coordinator
from offbeat.service.accounts.accounts import Accounts
from offbeat.service.accounts.issued_tokens import IN_FOLDER, Kind
from offbeat.service.audit.audit_log import start_facts
from offbeat.service.engine.checkpoint_schedule import CheckpointSchedule
from offbeat.service.engine.engine import Engine
from offbeat.service.engine.evaluation_queue import EvaluationQueue
from offbeat.service.engine.lease_timer import LeaseTimer
from offbeat.service.engine.server_checkpoint import CheckpointWriter
from offbeat.service.engine.service import Service
from offbeat.service.engine.start_up import open_engine
from offbeat.service.http.http_app import make_app
from offbeat.service.live.live_state import live_state
from offbeat.service.live.viewers import Viewers
from offbeat.service.masked.sum_opener import SumOpener
from offbeat.service.refusal import Refusal
from offbeat.service.server.addresses import local_host, public_host, write_address
from offbeat.service.server_settings import ServerSettings
from offbeat.service.store.model_files import Layout
from offbeat.service.store.store import Store
from offbeat.service.updates.uploads import Uploads

_GRACE_SECONDS = 10.0  # for requests under way when the server stops
_MIN_MODELS = 16  # a checkpoint is due by size after updates of at least so many models


@dataclass(frozen=True)
class Listening:
    """A server that listens.

    Attributes:
        url: The address for programs on this machine.
        public_url: The address for clients.
        enrolment_token: The token in the server's folder.
        service: The service.
        checkpoints: Writes checkpoints.
        viewers: The viewers of the live page.
    """

    url: str
    public_url: str
    enrolment_token: str
    service: Service
    checkpoints: CheckpointWriter
    viewers: Viewers


class _End:
    """The end of a server, by request or by an error; the first one counts."""

    def __init__(self) -> None:
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def error(self) -> BaseException | None:
        return self._future.exception() if self._future.done() else None

    def set(self, error: BaseException | None = None) -> None:
        if self._future.done():
            return
        if error is None:
            self._future.set_result(None)
        else:
            self._future.set_exception(error)

    async def wait(self) -> None:
        await self._future


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
    end, limit = _End(), max_connections(raise_file_limit())
    with _private_files(), _disk_errors(settings.folder, end), closing(Store(settings.folder)) as store:
        run_id = store.run_id(settings.config)
        with listen(settings.service.host, settings.service.port) as listener:
            engine, checkpoints = await open_engine(
                store,
                coordinator,
                layout,
                terms=settings.privacy.terms if settings.privacy else None,
                client_evaluation=settings.client_evaluation,
                stop_versions=settings.stop_versions,
                early_stop=settings.early_stop,
                clock=settings.clock,
                failed=end.set,
            )
            try:
                service = await _open_service(settings, store, engine, run_id)
                await _folder_token(store.folder, service, "admin")
                token = await _folder_token(store.folder, service, "enrolment")
                server = _Server(settings, service, checkpoints, listener, limit)
                async with _evaluating(settings, engine):
                    await server.run(token, end, ready, stop)
            finally:
                await engine.close()


class _Server:
    """A service that listens, with the tasks that it needs."""

    def __init__(
        self,
        settings: ServerSettings,
        service: Service,
        checkpoints: CheckpointWriter,
        listener: socket.socket,
        max_connections: int,
    ) -> None:
        engine, port = service.engine, listener.getsockname()[1]
        self._settings = settings
        self._service = service
        self._checkpoints = checkpoints
        scheme = "https" if settings.certificates else "http"
        self._url = f"{scheme}://{local_host(settings.service.host)}:{port}"
        self._public_url = f"{scheme}://{public_host(settings.service.host, settings.service.hosts)}:{port}"
        per_address = min(settings.service.connections_per_address or max_connections // 4, max_connections)
        self._connections = Connections(port, per_address)
        self._viewers = Viewers(
            partial(live_state, service, settings),
            engine.run.history,
            lambda: engine.run.now,
            engine.log_writer.wait_until_durable,
        )
        app = make_app(service, self._connections, self._viewers)
        self._http = HttpServer(app, listener, settings.certificates, max_connections)
        self._schedule = CheckpointSchedule(
            engine,
            checkpoints,
            seconds=settings.service.checkpoint_seconds,
            max_bytes=max(settings.checkpoint_bytes, _MIN_MODELS * 4 * engine.models.length),
        )
        self._timer = LeaseTimer(engine)
        self._opener: SumOpener | None = None
        if settings.privacy is not None and settings.privacy.helper is not None:
            self._opener = SumOpener(engine, settings.privacy.helper, settings.folder / "updates")

    async def run(
        self, enrolment_token: str, end: _End, ready: Callable[[Listening], None], stop: asyncio.Event
    ) -> None:
        """Serve until ``stop`` is set or a task fails."""
        serving = asyncio.create_task(self._http.serve())
        tasks: list[asyncio.Task[Any]] = [
            serving,
            asyncio.create_task(self._timer.run()),
            asyncio.create_task(self._connections.keep_watch()),
            asyncio.create_task(self._schedule.run()),
            asyncio.create_task(self._viewers.produce()),
            asyncio.create_task(self._service.accounts.audit.flush_regularly()),
            asyncio.create_task(stop.wait()),
        ]
        if self._opener is not None:
            tasks.append(asyncio.create_task(self._opener.run()))
        for task in tasks:
            task.add_done_callback(lambda task: end.set(None if task.cancelled() else task.exception()))
        try:
            certificates = self._settings.certificates
            write_address(self._settings.folder, self._url, certificates and certificates.certificate)
            listening = Listening(
                self._url, self._public_url, enrolment_token, self._service, self._checkpoints, self._viewers
            )
            ready(listening)
            await end.wait()
        finally:
            await self._stop(serving, tasks)

    async def _stop(self, serving: asyncio.Task[None], tasks: list[asyncio.Task[Any]]) -> None:
        """Finish the requests under way, end all tasks, and write a checkpoint."""
        self._service.is_ready = False
        self._service.engine.stop()
        self._viewers.close()
        self._http.stop()
        await asyncio.wait([serving], timeout=_GRACE_SECONDS)
        # Granian's own threads end a moment later, and complain if Python has ended before.
        await asyncio.sleep(0.1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        audit = self._service.accounts.audit
        audit.flush()
        audit.add("server stopped")
        with suppress(OSError, Refusal):
            await self._checkpoints.write()


async def _open_service(settings: ServerSettings, store: Store, engine: Engine, run_id: str) -> Service:
    accounts = Accounts(
        store.database,
        engine.log_writer,
        clients_limit=engine.coordinator.clients,
        token_seconds=settings.service.token_seconds,
        max_examples=settings.service.max_examples,
        keeps_examples=settings.privacy is None,
    )
    accounts.audit.add("server started", run=run_id, **start_facts(settings))
    uploads = Uploads(store.folder, settings.upload_budget)
    service = Service(engine, uploads, accounts, run_id=run_id, settings=settings)
    await service.weigh_clients()  # in case the last server ended just before
    return service


async def _folder_token(folder: Path, service: Service, kind: Kind) -> str:
    """Return the token in the folder's file, or a new one if that is not valid.

    All other tokens that the file has held are revoked.
    """
    path, accounts, log_writer = folder / f"{kind}-token", service.accounts, service.engine.log_writer
    token = None
    with suppress(FileNotFoundError, ValueError):
        found = path.read_text(encoding="ascii").strip()
        token = found if accounts.is_valid(found, kind) else None
    accounts.issued.keep_in_folder(kind, token)
    if token is None:
        token = accounts.issued.make(kind, name=IN_FOLDER)
        await log_writer.wait_until_durable()
        write_durably(path, f"{token}\n".encode("ascii"), mode=0o600)
    await log_writer.wait_until_durable()
    return token


@asynccontextmanager
async def _evaluating(settings: ServerSettings, engine: Engine) -> AsyncGenerator[None]:
    """Evaluate versions within the context.

    The newest is the first if an earlier server has not evaluated it. A failure of the program does not end the server.
    """
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
    task = asyncio.create_task(evaluations.run())
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
def _disk_errors(folder: Path, end: _End) -> Generator[None]:
    """Report failures of the disk in one line."""
    try:
        yield
    except OSError as error:
        raise OffbeatError(
            f"the server's disk cannot be used: {error.strerror or error}: {error.filename or folder}"
        ) from error
    except exc.DatabaseError as error:
        raise OffbeatError(f"the server's database cannot be used: {error.orig}: {folder}") from error
    except Refusal as refusal:
        error = end.error or refusal
        raise OffbeatError(f"the server's disk cannot be used: {error}: {folder}") from error
