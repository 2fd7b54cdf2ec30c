"""The rules by which a helper opens batches: pure, without keys, files or network.

``check`` raises before anything changes, ``record`` cannot fail. Between the two the caller opens the seeds and writes
batch and answer to its disk.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from offbeat_private.accounting import spending
from offbeat_private.helper.helper_refusal import HelperRefusal
from offbeat_private.masks.envelope import Envelope, parse
from offbeat_private.masks.helper_facts import Head, batch_digest, first_head, next_head
from offbeat_private.signed_terms import Terms

EPOCH_BATCHES = 100
"""How many batches an HPKE key is announced for; the epoch after it, it still opens records."""


class ClientHistory(NamedTuple):
    """The records of a client key that were opened."""

    participations: int = 0  # over all runs
    spent: float = 0.0  # over all runs: Σ 1/σ², so that √spent is the μ of a Gaussian mechanism
    visit: int = -1  # the last one of this run, as what follows
    start_version: int = -1
    batch: int = 0  # 0: none in this run


@dataclass
class Opened:
    """Everything that the rules remember."""

    batches: list[bytes] = field(default_factory=list[bytes])  # digests of the batches 1, 2, … of this run
    heads: list[Head] = field(default_factory=list[Head])  # after these batches
    histories: dict[bytes, ClientHistory] = field(default_factory=dict[bytes, ClientHistory])  # by client key
    models: dict[int, bytes] = field(default_factory=dict[int, bytes])  # digests by start version, of this run
    is_stopped: bool = False


@dataclass(frozen=True)
class Batch:
    """A batch that may be opened."""

    number: int
    digest: bytes
    envelopes: Sequence[Envelope]
    histories: dict[bytes, ClientHistory]  # by client key, once the batch is opened
    models: Mapping[int, bytes]  # digests of the records' models, by start version


class Rules:
    """Decides which batch a helper opens.

    Args:
        terms: The run's terms.
        roster: The client keys that take part.
        opened: What was opened so far; ``record`` adds to it.
        largest_spending: The most that a client may spend over all runs, as ``ClientHistory.spent``.
    """

    def __init__(
        self, terms: Terms, roster: Collection[bytes], opened: Opened, largest_spending: float = math.inf
    ) -> None:
        self._terms = terms
        self.terms_digest = terms.digest
        self._roster = frozenset(roster)
        self._first = first_head(self.terms_digest)
        self.opened = opened
        self._largest_spending = largest_spending

    @property
    def head(self) -> Head:
        """Return the chain's head; its number is the number of batches opened."""
        return self._head_at(len(self.opened.heads))

    @property
    def epoch(self) -> int:
        """Return the epoch, 0, 1, …, whose key is announced."""
        return epoch_of(self.head.number + 1)

    def check(self, number: int, records: Sequence[bytes]) -> Batch | None:
        """Return the batch if it may be opened; None if it was opened before.

        The caller then sends the same answer again.

        Raises:
            HelperRefusal: It must not be opened. Nothing has changed, unless the kind is ``rolled-back``: the caller
                has to keep ``opened.is_stopped``.
        """
        counter = self.head.number
        if self.opened.is_stopped:
            raise _rolled_back()
        if not 1 <= number <= counter + 1:
            raise HelperRefusal("wrong-number", f"the next batch is {counter + 1}, not {number}: send that")
        digest = batch_digest(self._terms.run, number, records)
        if number <= counter:
            self._check_repeated(number, digest)
            return None
        envelopes = self._envelopes(records)
        for envelope in envelopes:
            self._check_record(envelope)
        self._check_clients([envelope.binding.client for envelope in envelopes])
        histories = {envelope.binding.client: self._next(number, envelope) for envelope in envelopes}
        return Batch(number, digest, envelopes, histories, self._models(envelopes))

    def head_after(self, batch: Batch, answer_digest: bytes) -> Head:
        """Return the chain's head once a batch is opened."""
        return next_head(self.head, batch.digest, answer_digest)

    def noise_digests(self, batch: Batch) -> list[bytes]:
        """Return the digests that a batch's rows of noise are bound to, the newest last.

        Each is a digest of a batch and of all batches before it. So once two copies of a helper have opened different
        batches, all their later rows are different, even in equal batches.
        """
        heads = [self._first, *self.opened.heads][-self._terms.bands :]
        batches = [*self.opened.batches, batch.digest][-self._terms.bands :]
        return [next_head(head, digest, b"").digest for head, digest in zip(heads, batches, strict=True)]

    def record(self, batch: Batch, head: Head) -> None:
        """Record that the checked batch was opened; ``head`` is ``head_after`` it."""
        self.opened.batches.append(batch.digest)
        self.opened.heads.append(head)
        self.opened.histories.update(batch.histories)
        self.opened.models.update(batch.models)

    def _check_repeated(self, number: int, digest: bytes) -> None:
        if digest != self.opened.batches[number - 1]:
            raise HelperRefusal("other-batch", f"batch {number} was opened with other records, and opens only once")
        if epoch_of(number) < self.epoch - 1:
            raise HelperRefusal("answer-erased", f"the answer to batch {number} was erased with its epoch's key")

    def _envelopes(self, records: Sequence[bytes]) -> list[Envelope]:
        most = self._terms.buffer
        if len(records) > most:
            raise HelperRefusal(
                "too-many-clients", f"the batch has {len(records)} records, this run opens at most {most}: send fewer"
            )
        try:
            return [parse(record) for record in sorted(records)]
        except ValueError as error:
            raise HelperRefusal("malformed-record", f"a record cannot be read: {error}") from None

    def _check_record(self, envelope: Envelope) -> None:
        """Check a record by itself, without the other records of its batch."""
        bound, counter = envelope.binding, self.head.number
        refuse = partial(_refusal, bound.client)
        if bound.run != self._terms.run:
            raise refuse("wrong-run", "its record is for another run: drop it")
        if bound.terms != self.terms_digest:
            raise refuse("wrong-terms", "its record is for other terms: give it this run's terms.json")
        if bound.client not in self._roster:
            raise refuse("unknown-client", "it is not on the helper's roster: drop its record")
        try:
            envelope.check_signature()
        except ValueError:
            raise refuse("wrong-signature", "its record was not signed with its key: drop the record") from None
        try:
            envelope.check_head(self._terms.helper_key)
        except ValueError:
            raise refuse(
                "wrong-head",
                f"its record quotes head {bound.head_number}, which this helper has not signed: drop the record",
            ) from None
        # The helper itself signed it, so its folder is an old copy: no client can forge this.
        if bound.head_number > counter or bound.head != self._head_at(bound.head_number).digest:
            self.opened.is_stopped = True
            raise _rolled_back()
        if bound.epoch not in (self.epoch, self.epoch - 1):
            raise refuse(
                "wrong-epoch",
                f"its seed is sealed for epoch {bound.epoch}, but the helper is in {self.epoch}: drop its record",
            )
        if bound.version > counter:
            raise refuse(
                "version-ahead",
                f"its update is scaled for version {bound.version}, but {counter} batches were opened: drop its record",
            )

    def _head_at(self, number: int) -> Head:
        return self.opened.heads[number - 1] if number else self._first

    def _check_clients(self, clients: Sequence[bytes]) -> None:
        distinct = set(clients)
        if len(distinct) < len(clients):
            twice = next(client for client in sorted(distinct) if clients.count(client) > 1)
            raise HelperRefusal("client-twice", f"client {twice.hex()[:16]} is in the batch twice", twice)
        if len(distinct) < self._terms.min_clients:
            raise HelperRefusal(
                "too-few-clients",
                f"the batch has {len(distinct)} clients, this run opens {self._terms.min_clients} or more: add clients",
            )

    def _models(self, envelopes: Sequence[Envelope]) -> dict[int, bytes]:
        """Return the digests of the records' models by start version.

        All clients must train from one model of a version: a server that gives all clients but one a model whose
        updates it knows would learn the last one's update. If the records disagree on a version that is new in this
        batch, the digest of most records counts.
        """
        bindings = [envelope.binding for envelope in envelopes]
        counts = Counter((bound.start_version, bound.model) for bound in bindings)
        models = {version: model for (version, model), _ in reversed(counts.most_common())} | self.opened.models
        for bound in bindings:
            if bound.model != models[bound.start_version]:
                raise _refusal(
                    bound.client,
                    "other-model",
                    f"it trained from another model as version {bound.start_version} than others: drop its record",
                )
        return {bound.start_version: bound.model for bound in bindings}

    def _next(self, number: int, envelope: Envelope) -> ClientHistory:
        """Return a client's history after its record, or refuse the record."""
        bound, terms = envelope.binding, self._terms
        past = self.opened.histories.get(bound.client, ClientHistory())
        refuse = partial(_refusal, bound.client)
        if bound.visit <= past.visit:
            raise refuse(
                "visit-opened", f"visit {past.visit} of it was opened, and {bound.visit} is not later: drop its record"
            )
        if bound.start_version <= past.start_version:
            raise refuse(
                "start-version-opened",
                f"its visit from version {bound.start_version} comes after one from version "
                f"{past.start_version}: drop its record",
            )
        if past.participations >= terms.max_participations:
            raise refuse(
                "participations-spent",
                f"it has taken part {past.participations} times, the most that the terms allow: drop its record",
            )
        if past.batch and number - past.batch < terms.min_separation:
            first = past.batch + terms.min_separation
            raise refuse(
                "too-soon",
                f"it was in batch {past.batch}, and may be in batch {first} at the earliest: keep its record",
            )
        cost = spending(terms.noise_multiplier, 1)
        if past.spent + cost > self._largest_spending:
            raise refuse(
                "epsilon-spent", "its ε over all runs would exceed the helper's epsilon_total: drop its record"
            )
        return ClientHistory(past.participations + 1, past.spent + cost, bound.visit, bound.start_version, number)


def epoch_of(number: int) -> int:
    """Return the epoch of a batch."""
    return (number - 1) // EPOCH_BATCHES


def _refusal(client: bytes, kind: str, detail: str) -> HelperRefusal:
    return HelperRefusal(kind, f"client {client.hex()[:16]}: {detail}", client)


def _rolled_back() -> HelperRefusal:
    return HelperRefusal(
        "rolled-back",
        "a client has seen batches that this helper does not know, so the helper's folder is an old copy: stop the "
        "helper and put the newest folder back, or enrol again, which begins a new run",
    )
