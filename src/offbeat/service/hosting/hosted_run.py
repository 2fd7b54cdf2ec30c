"""One run of a server of several runs, from its opening to its end."""

import asyncio
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial

from offbeat_core.serving.connections import Connections
from offbeat_core.serving.console_log import run_at_work
from offbeat_private.accounting import spending

from offbeat.coordinator import Coordinator
from offbeat.service.audit.audit_log import acting
from offbeat.service.engine.start_up import open_engine
from offbeat.service.front.request_rate import RequestRate
from offbeat.service.hosting.admission import Admission
from offbeat.service.hosting.home import Home
from offbeat.service.hosting.hosted_accounts import HostedAccounts
from offbeat.service.refusal import Refusal
from offbeat.service.server.common_end import CommonEnd
from offbeat.service.server.run_service import RunService, beside_requests, open_service
from offbeat.service.server.serving import disk_errors
from offbeat.service.server_settings import ServerSettings
from offbeat.service.store.model_files import Layout
from offbeat.service.store.store import Store


@dataclass(frozen=True)
class PreparedRun:
    """A run as its file has it, with a fresh coordinator."""

    settings: ServerSettings
    coordinator: Coordinator
    layout: Layout
    admission: Admission
    requests_a_second: float | None = None  # of all its clients together; None for no limit


Prepare = Callable[[str, str], AbstractContextManager[PreparedRun]]
"""Prepares a run from its name and the text of its file; ``OffbeatError``."""


class HostedRun:
    """A run that is open; a failure of it leaves the server's other runs alone.

    Args:
        name: The run's.
        home: The server.
        connections: The server's.
        url: The server's, for people.
        spent_elsewhere: Returns what a client, by its identity, has spent in the server's other runs.
        failed: Called with the name and the error when the run has failed after its opening, and is closed.

    Attributes:
        last_used: When the last request came, in monotonic seconds.
        under_way: How many requests are.
    """

    def __init__(
        self,
        name: str,
        home: Home,
        connections: Connections,
        url: str,
        spent_elsewhere: Callable[[str], float],
        failed: Callable[[str, BaseException], None],
    ) -> None:
        self.name = name
        self.last_used = time.monotonic()
        self.under_way = 0
        self._home = home
        self._connections = connections
        self._url = f"{url}/runs/{name}"
        self._spent_elsewhere = spent_elsewhere
        self._failed = failed
        self._end = CommonEnd()
        self._run: RunService | None = None
        self._admission = Admission()
        self._rate: RequestRate | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def service(self) -> RunService:
        """The run's answers; ``Refusal`` once it has failed."""
        if self._run is None:
            raise Refusal("stopping", f"run {self.name} has failed: tell the server's operator", {"Retry-After": "30"})
        return self._run

    @property
    def is_ready(self) -> bool:
        """Return whether the run answers."""
        return self._run is not None

    @property
    def is_over(self) -> bool:
        """Return whether the run has come to its end."""
        return self._run is not None and self._run.service.engine.run.is_finished

    @property
    def may_rest(self) -> bool:
        """Return whether the run is over, and need not be open.

        Tokens of its own are known only while it is.
        """
        return self.is_over and not self.accounts.has_own_tokens

    @property
    def accounts(self) -> HostedAccounts:
        """The run's clients and tokens."""
        accounts = self.service.service.accounts
        assert isinstance(accounts, HostedAccounts)
        return accounts

    def spent(self, site: int) -> float:
        """Return Σ participations / σ² of a site, with a visit under way."""
        client, service = self.accounts.client_of(site), self.service.service
        if client is None:
            return 0.0
        is_at_work = service.engine.coordinator.visits.assignment(client) is not None
        privacy = service.settings.privacy
        noise_multiplier = 0.0 if privacy is None else privacy.noise_multiplier
        return spending(noise_multiplier, service.engine.tally[client].counted + is_at_work)

    def _with_budget(self, settings: ServerSettings) -> ServerSettings:
        """Let the server's other runs count towards a limit of ε."""
        if settings.privacy is None or settings.privacy.budget is None:
            return settings
        budget = replace(settings.privacy.budget, elsewhere=self._spent_elsewhere)
        return replace(settings, privacy=replace(settings.privacy, budget=budget))

    async def admit(self, site: int) -> int | None:
        """Return a site's number as a client; None if the run does not admit it."""
        accounts, sites = self.accounts, self._home.accounts.sites
        if (client := accounts.client_of(site)) is not None:
            return client
        admits = self._admission.admits(sites[site].name, self._home.state.labels.get(site, frozenset()))
        if not admits or accounts.is_full or self.is_over or self._is_revoked(site):
            return None
        self._home.admit(site, self.name)
        # First, so that a revocation of the site reaches the run whatever is killed.
        await self._home.log_writer.wait_until_durable()
        return None if self._is_revoked(site) else self.accounts.admit(site, sites[site].name)

    def _is_revoked(self, site: int) -> bool:
        return self._home.accounts.sites[site].revoked is not None

    async def give_up(self, site: int) -> None:
        """Free the slot of a site's open visit, if there is one."""
        client, engine = self.accounts.client_of(site), self.service.service.engine
        visit = None if client is None else engine.coordinator.visits.assignment(client)
        if visit is not None:
            await engine.give_up(visit.client, visit.visit)

    async def revoke(self, site: int) -> None:
        """Free the slot of a site that is revoked at the server."""
        client = self.accounts.client_of(site)
        if client is not None and self.accounts.sites[client].revoked is None:
            await self.service.service.revoke(client)

    async def open(self, prepared: AbstractContextManager[PreparedRun]) -> None:
        """Open the run, and keep it open until ``close``.

        Raises:
            OffbeatError: It cannot be opened.
        """
        opening: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live(prepared, opening))
        await opening

    def stop(self) -> None:
        """Give out no more work."""
        if self._run is not None:
            self._run.stop()

    async def close(self) -> None:
        """Write what is left, and close the run; no request is under way."""
        self._end.set()
        if self._task is not None:
            await self._task

    async def _live(self, prepared: AbstractContextManager[PreparedRun], opening: "asyncio.Future[None]") -> None:
        run_at_work.set(self.name)
        acting.set(None)  # of the request that has opened the run
        try:
            with prepared as run:
                await self._serve(run, opening)
        except BaseException as error:
            if not opening.done():
                opening.set_exception(error)
                return
            self._failed(self.name, error)

    async def _serve(self, prepared: PreparedRun, opening: "asyncio.Future[None]") -> None:
        settings, folder, end = self._with_budget(prepared.settings), prepared.settings.folder, self._end
        with disk_errors(folder, end), closing(Store(folder, end.set)) as store:
            engine, checkpoints = await open_engine(store, prepared.coordinator, prepared.layout, settings, end.set)
            try:
                service = await open_service(settings, engine, partial(HostedAccounts, self._home.accounts, self.name))
                async with beside_requests(service):
                    self._admission = prepared.admission
                    if (most := prepared.requests_a_second) is not None:
                        self._rate = RequestRate(most, max(int(2 * most), 1))
                    self._run = RunService(settings, service, checkpoints, self._connections, self._url)
                    self._run.start(end)
                    opening.set_result(None)
                    try:
                        await end.wait()
                    finally:
                        run, self._run = self._run, None
                        run.stop()
                        await end.cancel()
                        await run.finish()
            finally:
                await engine.close()

    async def forget_revoked(self) -> None:
        """Revoke the sites that were revoked while the run was not open."""
        for site, runs in list(self._home.state.admitted.items()):
            if self.name in runs and self._is_revoked(site):
                with suppress(Refusal):  # on a full disk the visit's lease lapses
                    await self.revoke(site)

    def take_request(self) -> None:
        """Take a request out of the run's quota; ``too-many-requests``."""
        if self._rate is not None:
            self._rate.take("")

    @contextmanager
    def used(self) -> Generator[None]:
        """Keep the run open within the context, whose events are the run's."""
        self.under_way += 1
        before = run_at_work.set(self.name)
        try:
            yield
        finally:
            run_at_work.reset(before)
            self.under_way -= 1
            self.last_used = time.monotonic()
