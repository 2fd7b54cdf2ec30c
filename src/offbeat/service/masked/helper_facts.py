"""The helper's latest facts, in the form in which clients get them."""

from offbeat_core.errors import OffbeatError
from offbeat_core.messages import EpochMessage, HeadMessage
from offbeat_private.masks.epoch_key import verify_epoch_key
from offbeat_private.terms import Terms

from offbeat.service.masked.helper_protocol import HelperFacts
from offbeat.service.refusal import Refusal


class LatestFacts:
    """The helper's epoch key and the head of its chain, and whether it answers.

    Args:
        terms: The run's terms.

    Attributes:
        problem: Why sums cannot be opened now, and what to do; None if they can.
    """

    def __init__(self, terms: Terms) -> None:
        self.problem: str | None = "the helper was not reached yet"
        self._terms = terms
        self._epoch: EpochMessage | None = None
        self._head: HeadMessage | None = None

    def take(self, facts: HelperFacts) -> None:
        """Take new facts.

        Raises:
            OffbeatError: They are not those of this run's helper.
        """
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
        """Return the facts for clients.

        Raises:
            Refusal: ``busy``: the helper has not answered since the server started.
        """
        if self._epoch is None or self._head is None:
            raise Refusal("busy", "the helper does not answer yet: try again later", {"Retry-After": "5"})
        return self._epoch, self._head
