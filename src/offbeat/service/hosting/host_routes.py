"""The routes of a server of several runs that concern no single run."""

from typing import Annotated

from fastapi import Depends, FastAPI, Request
from fastapi.responses import Response
from offbeat_core import messages
from offbeat_core.serving.connections import peer_of
from offbeat_core.tokens import token_hash

from offbeat.service import server_messages
from offbeat.service.accounts.token_forms import hash_of
from offbeat.service.engine.client_support import other_protocol
from offbeat.service.hosting.host_messages import HostStatus, ListedRun, NewLabels, NewRun, NewSiteToken, SitePage
from offbeat.service.hosting.host_metrics import metrics_text
from offbeat.service.hosting.host_service import HostService
from offbeat.service.http.admin_routes import After, Limit, add_token_routes, made_token, metrics_response
from offbeat.service.http.authentication import Admin, Operator, Viewer
from offbeat.service.http.request_parts import Number, Text, bearer_token
from offbeat.service.http.visit_routes import while_connected
from offbeat.service.internal.questions import CheckIn
from offbeat.service.refusal import Refusal


def _site(request: Request) -> tuple[int, str]:
    """Return the site that sends a request, and its token's SHA-256."""
    state, token = request.app.state, bearer_token(request.scope)
    hashed = hash_of(token, "client")
    state.rate.take(hashed)
    site = state.service.client(hashed)
    state.connections.trust(peer_of(request.scope), token or "")
    return site, hashed


Site = Annotated[tuple[int, str], Depends(_site)]


def add_host_routes(app: FastAPI, service: HostService) -> None:
    """Add these routes to an application."""
    _add_routes_for_sites(app, service)
    _add_run_routes(app, service)
    _add_site_routes(app, service)
    token_labels = service.home.state.token_labels
    add_token_routes(app, service.accounts, lambda hashed: sorted(token_labels.get(hashed, ())))

    @app.post("/v1/tokens", status_code=201)
    async def make_token(_: Admin, wanted: NewSiteToken) -> server_messages.MadeToken:
        """Make a token for enrolment, or for a person or a program with a role."""
        if wanted.labels and wanted.kind != "enrolment":
            raise Refusal("malformed-request", "only enrolment tokens have labels: leave labels out")
        made = await made_token(service.accounts, wanted)
        if wanted.labels:
            service.home.label_token(token_hash(made.token), wanted.labels)
            await service.home.log_writer.wait_until_durable()
        return made

    @app.get("/metrics")
    async def metrics(_: Viewer) -> Response:
        """Return the server's metrics in Prometheus' text format; each run has its own."""
        return metrics_response(metrics_text(service.status(), service.refusals))

    @app.get("/healthz")
    async def healthz() -> Response:
        """Answer as long as the server runs."""
        return Response("ok\n", media_type="text/plain")

    @app.get("/readyz")
    async def readyz() -> Response:
        """Return whether the server serves requests and can write to its disk."""
        problem = service.home.log_writer.problem or (None if service.is_ready else "stopping")
        return Response(f"{problem or 'ok'}\n", 503 if problem else 200, media_type="text/plain")


def _add_routes_for_sites(app: FastAPI, service: HostService) -> None:
    home = service.home

    @app.post("/v1/enrol", status_code=201)
    async def enrol(
        request: Request, enrolment: messages.Enrolment, offbeat_protocol: Text = None
    ) -> messages.Enrolled:
        """Enrol a site with the server, for all its runs."""
        if (missing := other_protocol(offbeat_protocol)) is not None:
            raise Refusal("not-supported", missing)
        enrolled = home.enrol(bearer_token(request.scope), enrolment)
        await home.log_writer.wait_until_durable()
        return enrolled

    @app.post("/v1/token")
    async def rotate(site: Site) -> messages.NewToken:
        """Get another token; the old one ends when the new one is first used."""
        token, seconds = service.accounts.rotate(site[0])
        await home.log_writer.wait_until_durable()
        return messages.NewToken(token=token, expires_seconds=seconds)

    @app.post("/v1/work")
    async def work(
        request: Request,
        site: Site,
        asked: messages.WorkRequest,
        offbeat_supports: Text = None,
        offbeat_protocol: Text = None,
    ) -> messages.Work:
        """Ask in which run there is work."""
        number, token = site
        check_in = CheckIn(
            token=token, wait_seconds=asked.wait_seconds, protocol=offbeat_protocol, supports=offbeat_supports
        )
        search = service.work.find(number, check_in, asked.without)
        return await while_connected(request.receive, search)


def _add_run_routes(app: FastAPI, service: HostService) -> None:
    @app.get("/v1/status")
    async def status(_: Viewer) -> HostStatus:
        """Return the state of all runs."""
        now = service.status()
        await service.home.log_writer.wait_until_durable()
        return now

    @app.post("/v1/runs", status_code=201)
    async def create(_: Admin, wanted: NewRun) -> ListedRun:
        """Begin a run."""
        return await service.create(wanted.name, wanted.file)


def _add_site_routes(app: FastAPI, service: HostService) -> None:
    home = service.home

    @app.get("/v1/sites")
    async def sites(_: Viewer, after: After = None, limit: Limit = 100) -> SitePage:
        """List sites, by number from the one after ``after``."""
        page = service.sites(-1 if after is None else after, limit)
        await home.log_writer.wait_until_durable()
        return page

    @app.delete("/v1/sites/{number}", status_code=204)
    async def revoke(_: Operator, number: Number) -> None:
        """Revoke a site's tokens, and free its slots in all runs."""
        await service.revoke(number)
        await home.log_writer.wait_until_durable()

    @app.delete("/v1/sites/{number}/data")
    async def forget(_: Admin, number: Number) -> server_messages.Forgotten:
        """Delete what the server and its runs hold of a site."""
        return await service.erasure.forget(number)

    @app.post("/v1/sites/{number}/labels", status_code=204)
    async def label(_: Operator, number: Number, wanted: NewLabels) -> None:
        """Give a site other labels; runs admit it by them from now on."""
        home.label(number, wanted.labels)
        await home.log_writer.wait_until_durable()
        service.runs.note_change()

    @app.post("/v1/sites/{number}/rename", status_code=204)
    async def rename(_: Operator, number: Number, wanted: server_messages.NewName) -> None:
        """Give a site another name."""
        service.accounts.rename(number, wanted.name)
        await home.log_writer.wait_until_durable()
        service.runs.note_change()
