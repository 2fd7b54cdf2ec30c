"""The server's view of its helper, and the facts that the helper signed last."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError
from offbeat_core.messages import EpochMessage, HeadMessage
from offbeat_private.masks.helper_facts import Head, verify_epoch_key
from offbeat_private.signed_terms import Terms

from offbeat.service.refusal import Refusal


class HelperRefusedError(OffbeatError):
    """The helper refused a request; the same one will not succeed.

    ``kind`` is the reason for programs, empty if the answer is not a helper's; ``detail`` is for people; ``client`` is
    the key of the client whose record is refused, None if the reason is not a single record.
    """

    def __init__(self, kind: str, detail: str, client: bytes | None = None) -> None:
        super().__init__(f"the helper refuses: {detail}{f' ({kind})' if kind else ''}")
        self.kind = kind
        self.detail = detail
        self.client = client


class HelperFacts(NamedTuple):
    """The helper's state for clients; nothing of it is verified yet."""

    run: bytes  # 16
    terms: bytes  # digest, 32
    epoch: int
    epoch_key: bytes  # signed, 100: offbeat_private.masks.helper_facts
    head: Head  # its number is the number of batches opened
    signature: bytes  # of the head, 64


class HelperAnswer(NamedTuple):
    """The answer to a batch: the sum of its masks minus the noise."""

    words: NDArray[np.uint32]  # (d,)
    head: Head
    signature: bytes  # of the head, 64


class MaskHelper(Protocol):
    """A helper; any thread may call the methods, and each makes one attempt.

    They raise ``UnreachableError`` if no answer came or the helper cannot serve now, which may pass, and
    ``HelperRefusedError`` if it refused.
    """

    def facts(self) -> HelperFacts:
        """Return the helper's state."""
        ...

    def open(self, number: int, records: Sequence[bytes]) -> HelperAnswer:
        """Return the answer to a batch of records, the same one whenever it is asked."""
        ...


class LatestFacts:
    """The helper's epoch key and the head of its chain.

    ``problem`` is why sums cannot be opened now, and what to do; None if they can.
    """

    def __init__(self, terms: Terms) -> None:
        self.problem: str | None = "the helper was not reached yet"
        self._terms = terms
        self._epoch: EpochMessage | None = None
        self._head: HeadMessage | None = None

    def take(self, facts: HelperFacts) -> None:
        """Take new facts; ``OffbeatError`` if they are not those of this run's helper."""
        if facts.terms != self._terms.digest:
            raise OffbeatError(
                f"the helper serves run {facts.run.hex()}, not {self._terms.run.hex()}: start it on the folder of this "
                "run, or begin a new run with its terms.json"
            )
        try:
            key = verify_epoch_key(facts.epoch_key, self._terms)
            facts.head.check_signature(facts.signature, self._terms.helper_key, self._terms.digest)
        except ValueError as error:
            raise OffbeatError(f"the helper's facts cannot be used ({error}): check service.helper_terms") from None
        signature = facts.epoch_key[-64:]
        self._epoch = EpochMessage(number=key.epoch, public_key=key.public_key.hex(), signature=signature.hex())
        self._head = HeadMessage(
            number=facts.head.number, digest=facts.head.digest.hex(), signature=facts.signature.hex()
        )

    def messages(self) -> tuple[EpochMessage, HeadMessage]:
        """Return the facts for clients; ``busy`` before the helper has answered."""
        if self._epoch is None or self._head is None:
            raise Refusal("busy", "the helper does not answer yet: try again later", {"Retry-After": "5"})
        return self._epoch, self._head
