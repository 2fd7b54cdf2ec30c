"""The server's view of its helper."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError
from offbeat_private.masks.head import Head


class HelperRefusedError(OffbeatError):
    """The helper refused a request; the same one will not succeed.

    Attributes:
        kind: The reason, for programs; empty if the answer is not a helper's.
        detail: The reason, for people.
        client: The key of the client whose record is refused; None if the reason is not a single record.
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
    epoch_key: bytes  # signed, 100: offbeat_private.masks.epoch_key
    head: Head  # its number is the number of batches opened
    signature: bytes  # of the head, 64


class HelperAnswer(NamedTuple):
    """The answer to a batch: the sum of its masks minus the noise."""

    words: NDArray[np.uint32]  # (d,)
    head: Head
    signature: bytes  # of the head, 64


class MaskHelper(Protocol):
    """A helper; any thread may call the methods, and each makes one attempt.

    They raise ``UnreachableError`` if no answer came, which may pass, and ``HelperRefusedError`` if it refused.
    """

    def facts(self) -> HelperFacts:
        """Return the helper's state."""
        ...

    def open(self, number: int, records: Sequence[bytes]) -> HelperAnswer:
        """Return the answer to a batch of records, the same one whenever it is asked."""
        ...
