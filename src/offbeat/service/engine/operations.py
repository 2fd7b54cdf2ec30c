"""Accounts, status and control of a server; its visits are the leader's."""

import math

from offbeat_core import messages

from offbeat.service.accounts.accounts import Accounts
from offbeat.service.accounts.declared_examples import within_share
from offbeat.service.engine.engine import Engine
from offbeat.service.engine.erasure import Erasure
from offbeat.service.engine.privacy_status import PrivacyStatus, is_without_clients, privacy_status
from offbeat.service.engine.problems import problems
from offbeat.service.engine.progress_log import ProgressLog
from offbeat.service.engine.prometheus_metrics import Metrics
from offbeat.service.engine.run_control import RunControl
from offbeat.service.engine.visit_messages import VisitMessages
from offbeat.service.live.recent_lines import RecentLines
from offbeat.service.refusal import Refusal
from offbeat.service.server_messages import ClientPage, Forgotten, Status
from offbeat.service.server_settings import ServerSettings
from offbeat.service.store.client_tally import listed_client


class Operations:
    """Answers admins, and clients but for their visits.

    ``is_ready`` until the server stops. ``erasure`` deletes what is held of a client.
    """

    erasure: Erasure

    def __init__(self, engine: Engine, accounts: Accounts, settings: ServerSettings) -> None:
        self.engine = engine
        self.accounts = accounts
        self.metrics = Metrics()
        self.progress = ProgressLog(engine, self.metrics.refusals_by_kind)
        self.lines = RecentLines()
        self.is_ready = True
        self.control = RunControl(engine, accounts.audit)
        self.visits = VisitMessages(engine, settings)
        self.settings = settings
        self._without_clients = (-1, False)  # the log's last row, and whether no client may take part since

    def count_refusal(self, kind: str) -> None:
        """Count a refusal, in the metrics and in the audit log."""
        self.metrics.refusals.labels(kind).inc()
        self.accounts.audit.count("refusals", kind)

    def client(self, token: str, *, may_stop: bool = False) -> int:
        """Return the client of a valid token, by its SHA-256.

        With ``may_stop`` also while the server is being stopped.
        """
        if not (self.is_ready or may_stop):
            raise Refusal("stopping", "the server is being stopped: try again later", {"Retry-After": "5"})
        client = self.accounts.check_hash(token, "client")
        self.engine.tally.see(client)
        return client

    async def enrol(self, token: str | None, enrolment: messages.Enrolment) -> messages.Enrolled:
        """Enrol a client; return its number and token."""
        number, client_token, seconds = self.accounts.enrol(token, enrolment.name, enrolment.token, enrolment.examples)
        self.engine.tally.see(number)
        await self.weigh_clients()
        return messages.Enrolled(client=number, token=client_token, expires_seconds=seconds)

    async def declare(self, client: int, examples: int) -> messages.Declaration:
        """Record how many examples a client holds."""
        self.accounts.declare(client, examples)
        await self.weigh_clients()
        return messages.Declaration(examples=examples)

    async def revoke(self, client: int) -> None:
        """Revoke a client's tokens, and free its slot."""
        self.accounts.revoke(client)
        await self.engine.dismiss(client)
        if self.engine.client_evaluations is not None:
            self.engine.client_evaluations.forget(client)
        await self.weigh_clients()

    async def grow(self, clients: int) -> None:
        """Let the run have more clients; ``cannot-grow``."""
        self.engine.log_writer.check()
        if clients != self.engine.coordinator.clients:
            try:
                await self.engine.grow(clients)
            except ValueError as error:
                raise Refusal("cannot-grow", str(error)) from None
            self.accounts.grow(clients)
            self.accounts.audit.add("run grown", clients=clients)
        await self.engine.log_writer.wait_until_durable()

    async def forget(self, client: int) -> Forgotten:
        """Delete what is held of a client; see ``Erasure``."""
        forgotten = await self.erasure.forget(client)
        await self.weigh_clients()
        return forgotten

    def clients(self, after: int, limit: int) -> ClientPage:
        """Return at most ``limit`` clients whose numbers are above ``after``."""
        sites, tally = self.accounts.sites, self.engine.tally
        numbers = range(after + 1, min(after + 1 + limit, len(sites)))
        listed = [
            listed_client(number, sites[number].name, sites[number].enrolled, sites[number].revoked, tally[number])
            for number in numbers
            if sites[number].forgotten is None
        ]
        is_last = after + 1 + limit >= len(sites)
        return ClientPage(
            total=len(sites) - len(self.accounts.forgotten), clients=listed, next=None if is_last else numbers[-1]
        )

    async def weigh_clients(self) -> None:
        """Begin a run once all its clients' examples are known; wait for the log."""
        if self.engine.coordinator.waits_for_examples and (examples := self.accounts.examples.all()):
            await self.engine.weigh_clients(within_share(examples, self.settings.service.max_share))
        await self.engine.log_writer.wait_until_durable()

    def waits_for(self) -> str | None:
        """Return what is missing before there is work, None if nothing is."""
        coordinator = self.engine.coordinator
        if self.engine.run.is_paused:
            return "an admin to resume it"
        if coordinator.waits_for_examples:
            return f"{self.accounts.examples.missing()} of {coordinator.clients} clients to enrol or declare examples"
        if self.engine.run.is_finished:
            return None
        # Only a row of the log changes the answer, so the clients are gone through once for each.
        number = self.engine.log_writer.number
        if self._without_clients[0] != number:
            self._without_clients = number, is_without_clients(coordinator)
        return "a new run: no client may take part any more" if self._without_clients[1] else None

    def stalled(self) -> str | None:
        """Return why clients work and yet no version is made, None if versions are made."""
        shares = self.engine.shares
        if shares is None or shares.facts.problem is None or self.engine.run.is_finished:
            return None
        # Strangers may ask, so the helper's address is left out.
        return "no new versions, since the helper cannot open sums: see offbeat server status"

    async def give_up_evaluation(self, client: int, version: int) -> None:
        """Record that a client that was asked does not evaluate a version."""
        self.engine.asked_evaluations(version).give_up(version, client)
        await self.engine.log_writer.wait_until_durable()

    @property
    def stop_versions(self) -> int | None:
        """The version at which the run ends; None if there is none."""
        versions = self.engine.run.stop_versions
        return None if versions == math.inf else int(versions)

    def status(self) -> Status:
        """Return the progress of the run."""
        coordinator, evaluations = self.engine.coordinator, self.engine.publisher.evaluations
        client_evaluations = self.engine.client_evaluations
        statistics, waits_for = coordinator.statistics, self.waits_for()
        return Status(
            problems=problems(self.engine, self.accounts, self.settings, self.progress.hour, waits_for),
            algorithm=coordinator.algorithm.name,
            version=coordinator.algorithm.version,
            stop_versions=self.stop_versions,
            finished=self.engine.run.is_finished,
            paused=self.engine.run.is_paused,
            enrolled=len(self.accounts),
            waits_for=waits_for,
            clients=coordinator.clients,
            waiting=len(self.engine.waiting),
            at_work=statistics.assigned - statistics.counted - statistics.unused - statistics.lost,
            assigned=statistics.assigned,
            counted=statistics.counted,
            unused=statistics.unused,
            lost=statistics.lost,
            mean_staleness=statistics.staleness_sum / max(statistics.counted, 1),
            max_staleness=statistics.staleness_max,
            refused_steps=len(coordinator.algorithm.refused_steps),
            run_seconds=self.engine.run.now,
            evaluated=evaluations.last if evaluations else None,
            evaluated_by_clients=client_evaluations.last if client_evaluations else None,
            best=self.engine.state.best,
            privacy=self._privacy_status(),
        )

    def _privacy_status(self) -> PrivacyStatus | None:
        settings, engine = self.settings.privacy, self.engine
        if settings is None:
            return None
        sites = self.accounts.sites if settings.budget else {}
        identities = {client: site.identity for client, site in sites.items()}
        return privacy_status(settings, engine.coordinator, engine.shares, identities)

    def metrics_text(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        self.metrics.set_status(self.status())
        return self.metrics.text()
