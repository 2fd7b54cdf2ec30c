"""The operations behind the HTTP routes, without sockets."""

import asyncio
import logging
import math

from offbeat_core import messages
from offbeat_core.errors import OffbeatError
from offbeat_core.serving.console_log import event

from offbeat.client_metrics import ClientResult
from offbeat.compression import uncompressed_bytes
from offbeat.coordinator import Assignment, Receipt, Unknown
from offbeat.service.accounts.accounts import Accounts
from offbeat.service.accounts.declared_examples import within_share
from offbeat.service.client_evaluation.client_evaluations import ClientEvaluations
from offbeat.service.engine.engine import Engine
from offbeat.service.engine.privacy_status import is_without_clients, privacy_status
from offbeat.service.engine.prometheus_metrics import Metrics
from offbeat.service.engine.run_control import RunControl
from offbeat.service.engine.update_admission import CheckedUpdate, Decision, UpdateAdmission
from offbeat.service.engine.waiting_clients import Turn
from offbeat.service.refusal import Refusal
from offbeat.service.server_messages import ClientPage, Status
from offbeat.service.server_settings import ServerSettings
from offbeat.service.store.client_tally import listed_client

RETRY_SECONDS = 5.0
"""When a client without work is to check in again."""


class Operations:
    """Answers clients and admins with messages; ``is_ready`` until the server stops."""

    def __init__(self, engine: Engine, accounts: Accounts, settings: ServerSettings) -> None:
        self.engine = engine
        self.accounts = accounts
        self.metrics = Metrics()
        self.is_ready = True
        self.control = RunControl(engine, accounts.audit)
        self._settings = settings
        self._without_clients = (-1, False)  # the log's last row, and whether no client may take part since
        self.admission = UpdateAdmission(engine, accounts, settings.service.max_update_norm)

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

    def clients(self, after: int, limit: int) -> ClientPage:
        """Return at most ``limit`` clients whose numbers are above ``after``."""
        sites, tally = self.accounts.sites, self.engine.tally
        numbers = range(after + 1, min(after + 1 + limit, len(sites)))
        listed = [
            listed_client(number, sites[number].name, sites[number].enrolled, sites[number].revoked, tally[number])
            for number in numbers
        ]
        is_last = after + 1 + limit >= len(sites)
        return ClientPage(total=len(sites), clients=listed, next=None if is_last else numbers[-1])

    async def weigh_clients(self) -> None:
        """Begin a run once all its clients' examples are known; wait for the log."""
        if self.engine.coordinator.waits_for_examples and (examples := self.accounts.examples.all()):
            await self.engine.weigh_clients(within_share(examples, self._settings.service.max_share))
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

    async def check_in(self, client: int, *, may_wait: bool) -> tuple[messages.CheckedIn, Assignment | None] | Turn:
        """Return a client's work, when it is to check in again, or its turn.

        Raises:
            Refusal: The client has been revoked; or the run needs the client's number of examples, and the client has
                not declared it, or the plan's rule gives no number of steps for it.
        """
        coordinator, examples = self.engine.coordinator, self.accounts.examples.of(client)
        if examples is None and (coordinator.waits_for_examples or coordinator.needs_steps(client)):
            what = "weighs every client" if coordinator.waits_for_examples else "plans a client's steps"
            raise Refusal(
                "no-examples",
                f"this run {what} by its examples: declare how many you hold (POST /v1/examples; in Python the "
                "attribute `examples` of the client)",
            )
        if examples is not None and coordinator.needs_steps(client):
            await self._note_steps(client, examples)
        assignment = await self.engine.check_in(client, may_wait=may_wait)
        if isinstance(assignment, asyncio.Future):
            return assignment
        checked_in = self._checked_in(client, assignment)
        if checked_in.finished:
            await self.engine.confirm()
        return checked_in, assignment

    async def _note_steps(self, client: int, examples: int) -> None:
        try:
            steps = self.engine.coordinator.local.of(examples).steps
        except (OffbeatError, ValueError) as error:
            event("no_steps", logging.WARNING, client=client, problem=str(error))
            raise Refusal(
                "wrong-examples", f"this run has no number of steps for {examples} examples: tell its operator"
            ) from None
        await self.engine.note_steps(client, steps)

    def _checked_in(self, client: int, assignment: Assignment | None) -> messages.CheckedIn:
        if assignment is not None:
            visit = self._visit(assignment, self._settings.lease_seconds)
            return messages.CheckedIn(visit=visit, retry_after_seconds=None, finished=False)
        if (version := self.engine.asked_to_evaluate(client)) is not None:
            models = self.engine.models
            asked = messages.EvaluationMessage(
                version=version, model_sha256=models.digest(version), length=models.length
            )
            return messages.CheckedIn(visit=None, retry_after_seconds=None, finished=False, evaluation=asked)
        is_finished = self.engine.run.is_finished
        retry = None if is_finished else RETRY_SECONDS
        return messages.CheckedIn(visit=None, retry_after_seconds=retry, finished=is_finished)

    def _visit(self, assignment: Assignment, lease_seconds: float | None) -> messages.VisitMessage:
        algorithm, models, shares = self.engine.coordinator.algorithm, self.engine.models, self.engine.shares
        return messages.VisitMessage(
            number=assignment.visit,
            version=assignment.version,
            since=assignment.since,
            payload=algorithm.payload,
            model_sha256=models.digest(assignment.version),
            length=models.length,
            seed=self._settings.service.seed,
            plan=messages.PlanMessage.of(assignment.plan),
            lease_seconds=lease_seconds,
            urgent=assignment.client in algorithm.urgent(),
            corrects_gradients=algorithm.corrects_gradients,
            needs_loss=algorithm.needs_loss,
            privacy=None if shares is None else messages.PrivacyMessage(terms=shares.terms.digest.hex()),
            digest=self._settings.service.digest if shares is None else "sha256",
        )

    def probe(self, client: int) -> messages.Probe:
        """Return the measurement that a client is to make before its first visit."""
        coordinator = self.engine.coordinator
        if self.engine.run.is_finished or not coordinator.wants_speed(client):
            return messages.Probe(probe=None, upload_bytes=0)
        newest = max(self.engine.models.versions())
        step = Assignment(client, 0, newest, coordinator.local.at(newest).prefix(1), math.inf, None)
        upload_bytes = min(uncompressed_bytes(self.engine.models.length), messages.LARGEST_PROBE)
        return messages.Probe(probe=self._visit(step, None), upload_bytes=upload_bytes)

    async def offer(self, client: int, visit: int) -> messages.UploadState:
        """Return whether an update would count."""
        receipt, share = await self.engine.offer(client, visit)
        if receipt is None:
            return messages.UploadState(wanted=True, offset=0, receipt=None, share=share)
        return messages.UploadState(wanted=False, offset=0, receipt=_receipt_message(receipt), audit_head=self._head)

    async def hand_in(self, update: CheckedUpdate) -> Decision:
        """Take in an update; ``Refusal``."""
        decision = await self.admission.decide(update)
        if decision.is_new:
            self.metrics.upload_bytes.inc(update.header.bytes)
            if isinstance(decision.receipt, Receipt) and decision.receipt.counted:
                self.metrics.staleness.observe(decision.receipt.staleness)
        return decision

    def received(self, client: int, decision: Decision, *, check_in: bool = False) -> messages.Received:
        """Return the answer to a client's update, and to its check-in if it asked for one."""
        following = self._checked_in(client, decision.assignment) if decision.is_new and check_in else None
        return messages.Received(receipt=_receipt_message(decision.receipt), next=following, audit_head=self._head)

    @property
    def _head(self) -> str:
        """The head of the audit log, for a receipt."""
        return str(self.accounts.audit.head)

    def hear(self, client: int, *, can_evaluate: bool) -> None:
        """Record that a client is available, and whether it can evaluate."""
        if self.engine.client_evaluations is not None:
            self.engine.client_evaluations.hear(client, can_evaluate=can_evaluate)

    async def evaluated(
        self, client: int, version: int, result: messages.EvaluationResult
    ) -> messages.EvaluationReceipt:
        """Take the evaluation of a version that the client is asked for."""
        self.accounts.examples.check_maximum(result.examples)
        if self.engine.models.differs(version, result.model_sha256):
            raise Refusal("no-such-evaluation", f"another model was evaluated than version {version}: check in again")
        counted = self._client_evaluations(version).answer(
            version, ClientResult(client, result.examples, result.metrics)
        )
        await self.engine.log_writer.wait_until_durable()
        return messages.EvaluationReceipt(counted=counted, audit_head=self._head)

    async def give_up_evaluation(self, client: int, version: int) -> None:
        """Record that a client that was asked does not evaluate a version."""
        self._client_evaluations(version).give_up(version, client)
        await self.engine.log_writer.wait_until_durable()

    def _client_evaluations(self, version: int) -> ClientEvaluations:
        self.engine.log_writer.check()
        if self.engine.client_evaluations is None:
            raise Refusal("no-such-evaluation", f"clients do not evaluate version {version} of this run")
        return self.engine.client_evaluations

    async def heartbeat(self, client: int, visit: int) -> messages.Beat:
        """Renew a visit's lease."""
        is_wanted, is_urgent = await self.engine.heartbeat(client, visit)
        return messages.Beat(wanted=is_wanted, lease_seconds=self._settings.lease_seconds, urgent=is_urgent)

    @property
    def stop_versions(self) -> int | None:
        """The version at which the run ends; None if there is none."""
        versions = self.engine.run.stop_versions
        return None if versions == math.inf else int(versions)

    def status(self) -> Status:
        """Return the progress of the run."""
        coordinator, evaluations = self.engine.coordinator, self.engine.publisher.evaluations
        client_evaluations = self.engine.client_evaluations
        statistics = coordinator.statistics
        return Status(
            algorithm=coordinator.algorithm.name,
            version=coordinator.algorithm.version,
            stop_versions=self.stop_versions,
            finished=self.engine.run.is_finished,
            paused=self.engine.run.is_paused,
            enrolled=len(self.accounts),
            waits_for=self.waits_for(),
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
            privacy=self._settings.privacy and privacy_status(self._settings.privacy, coordinator, self.engine.shares),
        )

    def metrics_text(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        self.metrics.set_status(self.status())
        return self.metrics.text()


def _receipt_message(receipt: Receipt | Unknown) -> messages.ReceiptMessage:
    if isinstance(receipt, Unknown):
        return messages.ReceiptMessage(counted=None, staleness=None, new_version=None)
    return messages.ReceiptMessage(**receipt._asdict())
