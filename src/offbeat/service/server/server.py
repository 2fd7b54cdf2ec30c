"""The server's life: it opens its folder, listens, keeps time, makes checkpoints, and stops when it is asked to."""

import asyncio
import errno
import math
import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.log import LogLevels
from granian.net import SocketHolder  # pyright: ignore[reportPrivateImportUsage]
from granian.server.embed import Server as EmbeddedServer

from offbeat.coordinator import Coordinator
from offbeat.errors import OffbeatError
from offbeat.service.accounts.accounts import IN_FOLDER, Accounts
from offbeat.service.descriptors import most_connections, raise_limit
from offbeat.service.engine.checkpoint_schedule import CheckpointSchedule
from offbeat.service.engine.evaluation import Evaluations
from offbeat.service.engine.facade import Limits, Service
from offbeat.service.engine.start_up import checkpoint, open_engine
from offbeat.service.http.connections import Connections
from offbeat.service.http.routes import make_app
from offbeat.service.refusal import Refusal
from offbeat.service.server.certificates import Certificates
from offbeat.service.store.folder_config import check_config
from offbeat.service.store.model_files import Layout
from offbeat.service.store.store import Store
from offbeat.service.updates.uploads import Uploads

_GRACE_SECONDS = 10.0  # for requests under way when the server is asked to stop
_BACKLOG = 1024
_IDLE_MILLISECONDS = 75_000  # how long a line is kept over which nothing is asked
# Granian's messages go the way of all others.
_LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {},
    "handlers": {},
    "loggers": {"_granian": {"handlers": [], "propagate": True}},
}


@dataclass(frozen=True)
class Settings:
    """How a server is run.

    Attributes:
        folder: All that it keeps.
        host: Address to listen at.
        port: TCP port; 0 for any that is free.
        certificates: For TLS; None for plain HTTP.
        token_seconds: How long clients' tokens are good for; None for ever.
        checkpoint_seconds: Between two checkpoints.
        connections_per_address: How many connections an address may have; None for a quarter of all.
        checkpoint_bytes: Of updates between two checkpoints, at most, unless a model has a sixteenth of that or more.
        upload_budget: Bytes of large uploads that may be under way.
        limits: What clients may do at most.
        stop_versions: The run is over at this version.
        lease_seconds: How long a slot is kept for a silent client; None for ever.
        seed: The run's seed.
        evaluate_every: Each how many versions one is measured; None for none.
        evaluate_command: The program that measures them.
        config: The run's configuration, which must be the same when the server is started again.
        clock: Seconds that pass evenly.
    """

    folder: Path
    host: str
    port: int
    certificates: Certificates | None
    token_seconds: float | None = None
    checkpoint_seconds: float = 30.0
    connections_per_address: int | None = None
    checkpoint_bytes: int = 2**28
    upload_budget: int = 2**34
    limits: Limits = field(default_factory=Limits)
    stop_versions: float = math.inf
    lease_seconds: float | None = None
    seed: int = 0
    evaluate_every: int | None = None
    evaluate_command: Sequence[str] = ()
    config: dict[str, Any] = field(default_factory=dict)
    clock: Callable[[], float] = time.monotonic


@dataclass(frozen=True)
class Listening:
    """What is known once the server listens."""

    url: str
    enrolment_token: str
    service: Service


async def serve(
    settings: Settings,
    coordinator: Coordinator,
    layout: Layout,
    *,
    ready: Callable[[Listening], None],
    stop: asyncio.Event,
) -> None:
    """Run a server until it is asked to stop; then requests under way are finished, and a checkpoint is made.

    Args:
        settings: How.
        coordinator: A fresh one.
        layout: What the model's vector is made of.
        ready: Called once it listens.
        stop: Is set to stop it.

    Raises:
        OffbeatError: The folder or the port cannot be used, or the disk has failed.
    """
    before = os.umask(0o077)  # others read nothing that the server writes
    try:
        await _serve(settings, coordinator, layout, ready, stop)
    finally:
        os.umask(before)


async def _serve(
    settings: Settings,
    coordinator: Coordinator,
    layout: Layout,
    ready: Callable[[Listening], None],
    stop: asyncio.Event,
) -> None:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def end(error: BaseException | None = None) -> None:
        if not ended.done():
            ended.set_exception(error) if error else ended.set_result(None)

    evaluating: asyncio.Task[None] | None = None
    most = most_connections(raise_limit())
    store, stack = Store(settings.folder), ExitStack()
    try:
        run_id = check_config(store, settings.config)
        listener = stack.enter_context(_listen(settings.host, settings.port))
        port = listener.getsockname()[1]
        engine = await open_engine(
            store, coordinator, layout, stop_versions=settings.stop_versions, clock=settings.clock, failed=end
        )
        accounts = Accounts(
            store.database,
            engine.journal,
            clients_limit=engine.coordinator.clients,
            token_seconds=settings.token_seconds,
            max_examples=settings.limits.max_examples,
        )
        service = Service(
            engine,
            Uploads(store.folder, settings.upload_budget),
            accounts,
            run_id=run_id,
            seed=settings.seed,
            lease_seconds=settings.lease_seconds,
            limits=settings.limits,
        )
        await service.weigh_clients()  # the server may have ended just before
        tokens = {kind: await _kept_token(store, service, kind) for kind in ("admin", "enrolment")}
        connections = Connections(port, min(settings.connections_per_address or most // 4, most))
        http = _HttpServer(service, settings, listener, connections, most)
        schedule = CheckpointSchedule(
            engine,
            lambda: checkpoint(store.folder, engine),
            seconds=settings.checkpoint_seconds,
            most_bytes=max(settings.checkpoint_bytes, 64 * engine.models.length),
        )
        tasks = [
            asyncio.create_task(http.serve()),
            asyncio.create_task(engine.keep_time()),
            asyncio.create_task(connections.keep_watch()),
            asyncio.create_task(schedule.run()),
            asyncio.create_task(_wait(stop)),
        ]
        if settings.evaluate_every is not None:
            every, command = settings.evaluate_every, settings.evaluate_command
            engine.evaluations = Evaluations(store.folder, engine.models, engine.journal.durable, every, command)
            # That it ends is no reason to stop.
            evaluating = asyncio.create_task(engine.evaluations.run())
        for task in tasks:
            task.add_done_callback(lambda task: end(None if task.cancelled() else task.exception()))
        try:
            scheme = "https" if settings.certificates else "http"
            host = "127.0.0.1" if settings.host == "0.0.0.0" else settings.host
            url = f"{scheme}://{host}:{port}"
            (store.folder / "url").write_text(f"{url}\n", encoding="ascii")
            ready(Listening(url, tokens["enrolment"], service))
            await ended
        finally:
            await _stop(store, service, http, tasks)
            if evaluating is not None:
                evaluating.cancel()
                await asyncio.gather(evaluating, return_exceptions=True)
    except OSError as error:
        raise OffbeatError(f"the server's disk cannot be used: {error.strerror or error}: {store.folder}") from error
    except Refusal as refusal:
        error = (ended.exception() if ended.done() else None) or refusal
        raise OffbeatError(f"the server's disk cannot be used: {error}: {store.folder}") from error
    finally:
        stack.close()
        store.close()


class _HttpServer(EmbeddedServer):
    """Granian's server on a socket that listens already; left to itself it would share its port with others."""

    def __init__(
        self, service: Service, settings: Settings, listener: socket.socket, connections: Connections, most: int
    ) -> None:
        certificates = settings.certificates
        super().__init__(
            make_app(service, connections),
            interface=Interfaces.ASGINL,
            http=HTTPModes.http1,  # uploads over HTTP/2 take five times as long
            websockets=False,
            backlog=_BACKLOG,
            backpressure=most,
            http1_settings=HTTP1Settings(header_read_timeout=_IDLE_MILLISECONDS),
            log_level=LogLevels.error,
            log_dictconfig=_LOGGING,
            ssl_cert=certificates.certificate if certificates else None,
            ssl_key=certificates.key if certificates else None,
        )
        self._listener = listener

    def _init_shared_socket(self) -> None:
        self._shd = SocketHolder(self._listener.detach(), False, _BACKLOG)  # pyright: ignore[reportCallIssue]
        self._sfd = self._shd.get_fd()


async def _wait(stop: asyncio.Event) -> None:
    await stop.wait()


async def _stop(store: Store, service: Service, http: _HttpServer, tasks: list[asyncio.Task[Any]]) -> None:
    service.ready = False
    engine = service.engine
    engine.stop()
    http.stop()
    await asyncio.wait(tasks[:1], timeout=_GRACE_SECONDS)
    # Granian's own threads end a moment later, and complain if Python has ended before.
    await asyncio.sleep(0.1)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    with suppress(OSError, Refusal):
        await checkpoint(store.folder, engine)
    await engine.journal.close()
    engine.close()


async def _kept_token(store: Store, service: Service, kind: Any) -> str:
    """Return the token in the folder's file, made anew if the file is missing or its token is not valid any more.

    The token that was in a file that is missing is revoked.
    """
    path, token = store.folder / f"{kind}-token", None
    with suppress(FileNotFoundError, ValueError):
        token = path.read_text(encoding="ascii").strip()
    is_valid = service.accounts.keep_for_folder(token, kind)
    await service.engine.journal.durable()
    if token is not None and is_valid:
        return token
    token = service.accounts.make(kind, name=IN_FOLDER)
    await service.engine.journal.durable()
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(f"{token}\n")
    return token


def _listen(host: str, port: int) -> socket.socket:
    try:
        listener = socket.create_server((host, port), backlog=_BACKLOG)
    except OSError as error:
        why = "it is in use" if error.errno == errno.EADDRINUSE else error.strerror
        raise OffbeatError(f"cannot listen at {host}:{port}: {why}: set service.host or service.port") from None
    # Accepted lines inherit it: one whose client has vanished ends.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return listener
