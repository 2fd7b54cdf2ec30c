"""A front in a process of its own."""

import asyncio
import logging
import multiprocessing
import os
import shutil
import signal
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from offbeat_core.errors import OffbeatError
from offbeat_core.serving.certificates import Certificates
from offbeat_core.serving.connections import Connections
from offbeat_core.serving.console_log import event, write_logs
from offbeat_core.serving.http_server import HttpServer, max_connections, raise_file_limit

from offbeat.service.blobs.open_blobs import open_blobs
from offbeat.service.front.front import Asks, Front
from offbeat.service.front.front_of_runs import FrontOfRuns
from offbeat.service.front.request_rate import RequestRate
from offbeat.service.http.front_app import make_front_app
from offbeat.service.internal.answers import DownloadPermission
from offbeat.service.internal.channel import Address
from offbeat.service.internal.leader_connection import LeaderConnection
from offbeat.service.login.login_settings import SECURE_COOKIE
from offbeat.service.server.common_end import GRACE_SECONDS, CommonEnd, unless_stopped
from offbeat.service.server.event_loop import run_until_a_signal
from offbeat.service.store.disk import Disk
from offbeat.service.store.shared_files import SharedFiles, model_path
from offbeat.service.updates.uploads import Uploads

_CACHE_BYTES = 2**32  # of models on their way from shared blobs


@dataclass(frozen=True, kw_only=True)
class FrontSettings:
    """The settings of a front.

    A front needs the leader's folder or shared blobs.
    """

    folder: Path  # of this front alone
    store: Path | None = None  # the leader's folder, if that is on this machine
    blobs: str | None = None  # the URL of shared blobs; None if there are none
    is_presigned: bool = False  # whether clients download models from there
    leaders: Sequence[Address]  # where servers that may lead listen for fronts
    internal: Certificates | None = None  # for leaders on other machines
    certificates: Certificates | None = None  # for clients; None for plain HTTP
    requests_a_second: float  # of a client, on average
    connections_per_address: int | None  # None for a quarter of all
    burst: int  # requests of a client at once
    upload_budget: int  # bytes of uploads under way, at most
    fronts: int = 1  # that share the listener, and the limit of connections of an address
    session_cookie: str = SECURE_COOKIE  # of people who have logged in
    has_runs: bool = False  # whether the leader has several runs, each in a folder of its own in ``store``


def run_child(settings: FrontSettings, listener: socket.socket, logs: tuple[str, Path | None]) -> None:
    """Run a front as a child of the leader's process.

    It ends with that, at once and without its requests, to which nobody could give answers; or by SIGTERM.
    """
    write_logs(*logs)
    os.umask(0o077)  # others may read nothing
    parent = multiprocessing.parent_process()
    assert parent is not None

    async def until_the_leader_ends(stop: asyncio.Event) -> None:
        asyncio.get_running_loop().add_reader(parent.sentinel, _end_at_once, settings.leaders)
        await serve_front(settings, listener, stop, lambda: None)

    try:
        run_until_a_signal(until_the_leader_ends)
    except (OSError, OffbeatError) as error:
        event("front_failed", logging.ERROR, problem=str(error))
        raise SystemExit(1) from None


def _end_at_once(leaders: Sequence[Address]) -> None:
    for address in leaders:
        if isinstance(address, Path):  # of which the leader, which was killed, has left the folder
            shutil.rmtree(address.parent, ignore_errors=True)
    os.kill(os.getpid(), signal.SIGKILL)


async def serve_front(
    settings: FrontSettings, listener: socket.socket, stop: asyncio.Event, ready: Callable[[], None]
) -> None:
    """Serve clients until ``stop`` is set.

    ``ready`` is called once a leader has been found.
    """
    for name in ("partial", "updates"):
        (settings.folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
    end, leader = CommonEnd(), LeaderConnection(settings.leaders, settings.internal)
    try:
        end.start(leader.run())
        if await unless_stopped(leader.found.wait(), stop):
            ready()
            await _serve(settings, listener, leader, stop, end)
    finally:
        await end.cancel()


async def _serve(
    settings: FrontSettings, listener: socket.socket, leader: LeaderConnection, stop: asyncio.Event, end: CommonEnd
) -> None:
    limit = max_connections(raise_file_limit())
    per_address = settings.connections_per_address or limit // 4
    connections = Connections(listener.getsockname()[1], min(-(-per_address // settings.fronts), limit))
    if settings.has_runs:
        assert settings.store is not None, "a front of several runs is on the leader's machine"
        make = partial(_front_of_run, settings, end.set)
        app = FrontOfRuns(leader, make, connections, settings.store, settings.session_cookie)
    else:
        app = make_front_app(_front(settings, leader, end.set, leader.run_id), connections, settings.session_cookie)
    http = HttpServer(app, connections, listener, settings.certificates, limit)
    serving = end.start(http.serve())
    end.start(connections.keep_watch())
    end.start(stop.wait())
    try:
        await end.wait()
    finally:
        await http.close(serving, GRACE_SECONDS)


def _front_of_run(
    settings: FrontSettings, failed: Callable[[BaseException], None], leader: Asks, run: Path | None
) -> Front:
    """Return the front of the run in this folder; None for a run that is not there."""
    folder = settings.folder
    if run is not None:
        folder = run / "fronts" / settings.folder.name
        for name in ("partial", "updates"):
            (folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
    return _front(replace(settings, folder=folder, store=run or folder), leader, failed)


def _front(
    settings: FrontSettings, leader: Asks, failed: Callable[[BaseException], None], run_id: str | None = None
) -> Front:
    """Return the front of a run; ``failed`` is called if its disk fails."""
    shared = None
    if settings.blobs is not None:
        assert run_id is not None
        shared = SharedFiles(
            open_blobs(settings.blobs, settings.folder / "partial", _CACHE_BYTES), run_id, settings.folder
        )
    store = settings.store
    return Front(
        leader,
        Uploads(settings.folder, settings.upload_budget, updates=store and store / "updates"),
        RequestRate(settings.requests_a_second, settings.burst),
        partial(_find_model, store and store / "models", shared),
        Disk(settings.folder / "reserve", failed).refusal,
        shared,
        is_elsewhere=store is None,
        is_presigned=settings.is_presigned,
    )


async def _find_model(folder: Path | None, shared: SharedFiles | None, found: DownloadPermission) -> Path:
    if folder is not None:
        return model_path(folder, found.version)
    assert shared is not None, "a front has the leader's folder, or shared blobs"
    return await asyncio.to_thread(shared.model, found.version, found.sha256)
