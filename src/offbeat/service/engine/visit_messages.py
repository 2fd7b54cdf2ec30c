"""Messages that tell clients of their work."""

import math

from offbeat_core import messages

from offbeat.compression import uncompressed_bytes
from offbeat.coordinator import Assignment, Receipt, Unknown
from offbeat.service.engine.engine import Engine
from offbeat.service.server_settings import ServerSettings

RETRY_SECONDS = 5.0
"""When a client without work is to check in again."""


class VisitMessages:
    """Makes the messages of visits."""

    def __init__(self, engine: Engine, settings: ServerSettings) -> None:
        self._engine = engine
        self._settings = settings

    def checked_in(self, client: int, assignment: Assignment | None) -> messages.CheckedIn:
        """Return the answer to a check-in.

        It holds a visit, a version to evaluate, or when to come again.
        """
        if assignment is not None:
            visit = self._visit(assignment, self._settings.lease_seconds)
            return messages.CheckedIn(visit=visit, retry_after_seconds=None, finished=False)
        if (version := self._engine.asked_to_evaluate(client)) is not None:
            models = self._engine.models
            asked = messages.EvaluationMessage(
                version=version, model_sha256=models.digest(version), length=models.length
            )
            return messages.CheckedIn(visit=None, retry_after_seconds=None, finished=False, evaluation=asked)
        is_finished = self._engine.run.is_finished
        retry = None if is_finished else RETRY_SECONDS
        return messages.CheckedIn(visit=None, retry_after_seconds=retry, finished=is_finished)

    def probe(self, client: int) -> messages.Probe:
        """Return the measurement that a client is to make before its first visit."""
        coordinator = self._engine.coordinator
        if self._engine.run.is_finished or not coordinator.wants_speed(client):
            return messages.Probe(probe=None, upload_bytes=0)
        newest = max(self._engine.models.versions())
        step = Assignment(client, 0, newest, coordinator.local.at(newest).prefix(1), math.inf, None)
        upload_bytes = min(uncompressed_bytes(self._engine.models.length), messages.LARGEST_PROBE)
        return messages.Probe(probe=self._visit(step, None), upload_bytes=upload_bytes)

    def _visit(self, assignment: Assignment, lease_seconds: float | None) -> messages.VisitMessage:
        algorithm, models, shares = self._engine.coordinator.algorithm, self._engine.models, self._engine.shares
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


def receipt_message(receipt: Receipt | Unknown) -> messages.ReceiptMessage:
    """Return a receipt, or that nobody knows any more whether the update counted."""
    if isinstance(receipt, Unknown):
        return messages.ReceiptMessage(counted=None, staleness=None, new_version=None)
    return messages.ReceiptMessage(**receipt._asdict())
