"""The life of a server of several runs."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from offbeat_core.serving.certificates import Certificates
from offbeat_core.serving.connections import Connections
from offbeat_core.serving.console_log import event
from offbeat_core.serving.http_server import HttpServer, listen, max_connections, raise_file_limit
from pydantic import BaseModel
from starlette.types import ASGIApp

from offbeat.service.front.forwarding import forwarded
from offbeat.service.front.front_process import FrontSettings
from offbeat.service.front.request_rate import RequestRate
from offbeat.service.hosting.home import opened_home
from offbeat.service.hosting.host_app import make_host_app
from offbeat.service.hosting.host_service import HostService
from offbeat.service.hosting.hosted_run import Prepare
from offbeat.service.hosting.runs import Runs
from offbeat.service.internal.questions import Forward, Question
from offbeat.service.login.login_settings import SECURE_COOKIE, LoginSettings
from offbeat.service.refusal import Refusal
from offbeat.service.server.addresses import write_address
from offbeat.service.server.common_end import GRACE_SECONDS, CommonEnd
from offbeat.service.server.fronts import Fronts
from offbeat.service.server.run_service import folder_token
from offbeat.service.server.serving import disk_errors, most_connections, private_files, urls
from offbeat.service.server_settings import AddressSettings

_BURST = 200  # requests of a site at once
_UPLOADS = 2**34  # bytes of uploads under way in each run, at most


@dataclass(frozen=True, kw_only=True)
class HostSettings:
    """The settings of a server of several runs."""

    folder: Path
    service: AddressSettings
    certificates: Certificates | None = None  # for TLS; None for plain HTTP
    login: LoginSettings | None = None  # None: people have tokens only
    front_processes: int = 0  # that serve sites in place of the leader's own process


@dataclass(frozen=True)
class HostListening:
    """A server of several runs that listens."""

    url: str  # for programs on this machine
    public_url: str  # for sites
    service: HostService
    fronts: Fronts  # in processes of their own


async def host(
    settings: HostSettings, prepare: Prepare, *, ready: Callable[[HostListening], None], stop: asyncio.Event
) -> None:
    """Run a server until ``stop`` is set; call ``ready`` once it listens."""
    end, limit = CommonEnd(), max_connections(raise_file_limit())
    with private_files(), disk_errors(settings.folder, end):
        async with opened_home(settings.folder, settings.service.token_seconds, end.set) as home:
            with listen(settings.service.host, settings.service.port) as listener:
                port = listener.getsockname()[1]
                url, public_url = urls(settings.service, port, has_tls=settings.certificates is not None)
                connections = Connections(port, most_connections(settings.service, limit))
                runs = Runs(home, prepare, connections, public_url)
                service = HostService(home, runs)
                rate = RequestRate(settings.service.requests_a_second, _BURST)
                app = make_host_app(service, rate, connections, settings.login, public_url)
                fronts = Fronts(
                    home.run_id,
                    home.log_writer,
                    partial(_answer, service, app),
                    None,
                    settings.front_processes,
                    _front_settings(settings),
                    listener,
                )
                http = None
                if not settings.front_processes:
                    http = HttpServer(app, connections, listener, settings.certificates, limit)
                home.audit.add("server started")
                for kind in ("admin", "enrolment"):
                    await folder_token(settings.folder, home.accounts, kind, is_shared=False)
                try:
                    await runs.open_unfinished()
                    serving = None if http is None else end.start(http.serve())
                    if settings.front_processes:
                        end.start(fronts.run())
                    for work in (runs.keep_watch(), connections.keep_watch(), stop.wait(), service.erasure.run()):
                        end.start(work)
                    end.start(home.audit.flush_regularly())
                    certificate = settings.certificates and settings.certificates.certificate
                    write_address(settings.folder, url, certificate)
                    event("ready", url=public_url, runs=len(home.state.runs))
                    ready(HostListening(url, public_url, service, fronts))
                    try:
                        await end.wait()
                    finally:
                        service.is_ready = False
                        runs.stop()
                        if http is not None and serving is not None:
                            await http.close(serving, GRACE_SECONDS)
                        await fronts.close()
                        await end.cancel()
                finally:
                    await runs.close()
                    home.audit.flush()
                    home.audit.add("server stopped")


def _front_settings(settings: HostSettings) -> FrontSettings:
    number = max(settings.front_processes, 1)
    return FrontSettings(
        folder=settings.folder / "fronts",
        store=settings.folder,
        leaders=[],
        certificates=settings.certificates,
        requests_a_second=settings.service.requests_a_second,
        connections_per_address=settings.service.connections_per_address,
        burst=_BURST,
        upload_budget=_UPLOADS // number,
        fronts=number,
        has_runs=True,
        session_cookie=SECURE_COOKIE if settings.login is None else settings.login.cookie,
    )


async def _answer(
    service: HostService, app: ASGIApp, question: Question[Any], has_waited: bool
) -> "BaseModel | asyncio.Future[None]":
    """Answer a front's question."""
    if isinstance(question, Forward):
        return await forwarded(app, question)
    try:
        return await service.answer(question, has_waited=has_waited)
    except Refusal as refusal:
        service.count_refusal(refusal.kind)
        if 400 <= refusal.status < 500:
            await service.confirm()
        raise
