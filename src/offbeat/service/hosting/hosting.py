"""The life of a server of several runs."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from offbeat_core.serving.certificates import Certificates
from offbeat_core.serving.connections import Connections
from offbeat_core.serving.console_log import event
from offbeat_core.serving.http_server import HttpServer, listen, max_connections, raise_file_limit

from offbeat.service.front.request_rate import RequestRate
from offbeat.service.hosting.home import opened_home
from offbeat.service.hosting.host_app import make_host_app
from offbeat.service.hosting.host_service import HostService
from offbeat.service.hosting.hosted_run import Prepare
from offbeat.service.hosting.runs import Runs
from offbeat.service.login.login_settings import LoginSettings
from offbeat.service.server.addresses import write_address
from offbeat.service.server.common_end import GRACE_SECONDS, CommonEnd
from offbeat.service.server.run_service import folder_token
from offbeat.service.server.serving import disk_errors, most_connections, private_files, urls
from offbeat.service.server_settings import AddressSettings

_BURST = 200  # requests of a site at once


@dataclass(frozen=True, kw_only=True)
class HostSettings:
    """The settings of a server of several runs."""

    folder: Path
    service: AddressSettings
    certificates: Certificates | None = None  # for TLS; None for plain HTTP
    login: LoginSettings | None = None  # None: people have tokens only


@dataclass(frozen=True)
class HostListening:
    """A server of several runs that listens."""

    url: str  # for programs on this machine
    public_url: str  # for sites
    service: HostService


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
                http = HttpServer(app, connections, listener, settings.certificates, limit)
                home.audit.add("server started")
                for kind in ("admin", "enrolment"):
                    await folder_token(settings.folder, home.accounts, kind, is_shared=False)
                try:
                    await runs.open_unfinished()
                    serving = end.start(http.serve())
                    for work in (runs.keep_watch(), connections.keep_watch(), stop.wait(), service.erasure.run()):
                        end.start(work)
                    end.start(home.audit.flush_regularly())
                    certificate = settings.certificates and settings.certificates.certificate
                    write_address(settings.folder, url, certificate)
                    event("ready", url=public_url, runs=len(home.state.runs))
                    ready(HostListening(url, public_url, service))
                    try:
                        await end.wait()
                    finally:
                        service.is_ready = False
                        runs.stop()
                        await http.close(serving, GRACE_SECONDS)
                        await end.cancel()
                finally:
                    await runs.close()
                    home.audit.flush()
                    home.audit.add("server stopped")
