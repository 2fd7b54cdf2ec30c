"""The life of a server.

Start: lock and open the folder, compare its configuration, bind the socket, load the checkpoint, replay the log's later
rows, write a new checkpoint, then answer requests.

Stop, by a signal or a failure: hand out no more work, let requests under way end (ten seconds at most), write a
checkpoint, close the log, release the folder.
"""

import asyncio
import os
import socket
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from offbeat_core.errors import OffbeatError
from offbeat_core.serving.connections import Connections
from offbeat_core.serving.console_log import event
from offbeat_core.serving.http_server import HttpServer, listen, max_connections, raise_file_limit
from sqlalchemy import exc

from offbeat.coordinator import Coordinator
from offbeat.service.blobs.check_blobs import check
from offbeat.service.engine.operations import Operations
from offbeat.service.engine.server_checkpoint import CheckpointWriter
from offbeat.service.engine.start_up import open_engine
from offbeat.service.front.front import Front
from offbeat.service.log.log import LogUnavailableError
from offbeat.service.refusal import Refusal
from offbeat.service.server.addresses import local_host, public_host, write_address
from offbeat.service.server.common_end import GRACE_SECONDS, CommonEnd, unless_stopped
from offbeat.service.server.fronts import Fronts, answers, front_settings
from offbeat.service.server.run_service import RunService, beside_requests, folder_token, open_service
from offbeat.service.server_settings import AddressSettings, ServerSettings
from offbeat.service.store.disk import UnreachableFilesError
from offbeat.service.store.model_files import Layout
from offbeat.service.store.store import Store

_TRIES = 20
_PAUSE_SECONDS = 0.1  # between two tries to listen


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
        private_files(),
        disk_errors(settings.folder, end),
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
            service = await open_service(settings, engine)
            is_shared = store.shared is not None
            await folder_token(store.folder, service.accounts, "admin", is_shared=is_shared)
            token = await folder_token(store.folder, service.accounts, "enrolment", is_shared=is_shared)
            async with beside_requests(service):
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
    port = listener.getsockname()[1]
    url, public_url = urls(settings.service, port, has_tls=settings.certificates is not None)
    connections = Connections(port, most_connections(settings.service, limit))
    run = RunService(settings, service, checkpoints, connections, public_url)
    fronts = Fronts(
        str(service.engine.run.state.run_id),
        service.engine.log_writer,
        answers(service, run.leader, run.app),
        settings.fronts,
        settings.front_processes,
        front_settings(settings),
        listener,
    )
    http = None
    if not settings.front_processes:
        http = HttpServer(run.app, connections, listener, settings.certificates, limit)
    serving = None if http is None else end.start(http.serve())
    run.start(end)
    end.start(connections.keep_watch())
    end.start(stop.wait())
    if settings.front_processes or settings.fronts is not None:
        end.start(fronts.run())
    try:
        write_address(settings.folder, url, settings.certificates and settings.certificates.certificate)
        event("ready", url=public_url, version=service.engine.coordinator.algorithm.version)
        ready(Listening(url, public_url, enrolment_token, service, run.front, fronts, checkpoints))
        await end.wait()
    finally:
        run.stop()
        if http is not None and serving is not None:
            await http.close(serving, GRACE_SECONDS)
        await fronts.close()
        await end.cancel()
        await run.finish()


def urls(settings: AddressSettings, port: int, *, has_tls: bool) -> tuple[str, str]:
    """Return a server's URLs: for programs on this machine, and for clients."""
    scheme = "https" if has_tls else "http"
    hosts = local_host(settings.host), public_host(settings.host, settings.hosts)
    local, public = (f"{scheme}://{host}:{port}" for host in hosts)
    return local, public


def most_connections(settings: AddressSettings, limit: int) -> int:
    """Return the most connections from one address to a server that accepts ``limit``."""
    return min(settings.connections_per_address or limit // 4, limit)


@contextmanager
def private_files() -> Generator[None]:
    """Let others read nothing that is written within the context."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def disk_errors(folder: Path, end: CommonEnd) -> Generator[None]:
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
