"""Shares of a masked run: the values for making one, the checks of its record."""

import asyncio
from contextlib import suppress

from offbeat_core.messages import ShareMessage
from offbeat_core.model_file import model_digest
from offbeat_private.masks.envelope import parse
from offbeat_private.masks.share import commitment
from offbeat_private.signed_terms import Terms

from offbeat.coordinator import Assignment, Coordinator
from offbeat.coordinator.sealed_sums import upload_scale
from offbeat.service.masked.helper_protocol import LatestFacts
from offbeat.service.refusal import Refusal
from offbeat.service.store.model_files import ModelFiles
from offbeat.service.updates.update_header import ShareHeader
from offbeat.service.updates.upload_history import ClientKeys


class MaskedShares:
    """The shares of a run."""

    def __init__(self, terms: Terms, coordinator: Coordinator, models: ModelFiles, keys: ClientKeys) -> None:
        self.terms = terms
        self.facts = LatestFacts(terms)
        self._coordinator = coordinator
        self._models = models
        self._keys = keys
        self._model_digests: dict[int, bytes] = {}  # by version

    def offer(self, assignment: Assignment) -> ShareMessage:
        """Return the facts for a share that is made now; ``busy`` before there are any.

        The caller holds the engine's lock.
        """
        epoch, head = self.facts.messages()
        algorithm = self._coordinator.algorithm
        scale = upload_scale(algorithm, assignment.client, assignment.version, assignment.plan)
        return ShareMessage(version=algorithm.version, scale=scale, epoch=epoch, head=head)

    async def prepare(self, version: int) -> None:
        """Compute the digest of a version, for the checks of shares."""
        if version in self._model_digests:
            return
        with suppress(FileNotFoundError):
            self._model_digests[version] = await asyncio.to_thread(self._digest, version)
        for old in sorted(self._model_digests)[: -self._coordinator.clients - 1]:
            del self._model_digests[old]

    def _digest(self, version: int) -> bytes:
        return model_digest({name: part.numpy() for name, part in self._models.named(version).items()})

    def check(self, assignment: Assignment, header: ShareHeader) -> None:
        """Refuse a share that does not fit: ``wrong-share`` or ``stale-share``."""
        try:
            envelope = parse(header.share)
            envelope.check_signature()
            envelope.check_head(self.terms.helper_key)
        except ValueError as error:
            raise _wrong(str(error)) from None
        bound = envelope.binding
        if bound.terms != self.terms.digest or bound.run != self.terms.run:
            raise _wrong("it is for other terms: give the client this run's terms.json")
        if (bound.visit, bound.start_version) != (assignment.visit, assignment.version):
            raise _wrong(
                f"it is for visit {bound.visit} from version {bound.start_version}, the open one is visit "
                f"{assignment.visit} from version {assignment.version}: make one for that"
            )
        if not assignment.version <= bound.version <= self._coordinator.algorithm.version:
            raise _wrong(
                f"it is scaled for version {bound.version}, but the open version is "
                f"{self._coordinator.algorithm.version}: scale for that"
            )
        # The file of a version is kept while a visit from it has its slot.
        if self._model_digests.get(assignment.version, bound.model) != bound.model:
            raise _wrong(f"it was made from another model than version {assignment.version}: download that again")
        if bound.vector != commitment(bytes.fromhex(header.sha256), bytes.fromhex(header.salt)):
            raise _wrong(
                "its commitment is not that of the header's sha256 and salt: send the values that it was made from"
            )
        if not self._keys.allows(assignment.client, bound.client):
            raise _wrong(
                "its key is not that of the client's first share, or is another client's: use the first share's key"
            )
        # Any head that the helper signed is passed on: one that it does not know shows it that it was rolled back.
        epoch, _ = self.facts.messages()
        if bound.epoch not in (epoch.number, epoch.number - 1):
            raise Refusal(
                "stale-share",
                f"its seed is sealed for epoch {bound.epoch}, but the helper is in {epoch.number}: make a new share of "
                "the same update with the upload's present state",
            )

    def add_key(self, client: int, record: bytes) -> None:
        """Record the key of a received share."""
        self._keys.add(client, parse(record).binding.client)

    def client(self, key: bytes) -> int | None:
        """Return the client that a key belongs to; None if it is unknown."""
        return self._keys.client(key)


def _wrong(problem: str) -> Refusal:
    return Refusal("wrong-share", f"the share is wrong: {problem}")
