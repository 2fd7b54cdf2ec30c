"""The server's view of its helper."""

from collections.abc import Sequence
from typing import Protocol

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


class HelperFacts(Protocol):
    """The helper's state, which the server passes on to clients."""

    @property
    def run(self) -> bytes:
        """The run's id, 16 bytes."""
        ...

    @property
    def terms(self) -> bytes:
        """The digest of the terms, 32 bytes."""
        ...

    @property
    def epoch_key(self) -> bytes:
        """The signed key of the epoch, 100 bytes."""
        ...

    @property
    def head(self) -> Head:
        """The head of the chain."""
        ...

    @property
    def signature(self) -> bytes:
        """The helper's signature of the head, 64 bytes."""
        ...


class HelperAnswer(Protocol):
    """The answer to a batch."""

    @property
    def words(self) -> NDArray[np.uint32]:
        """The sum of the masks minus the noise, ``(d,)``."""
        ...


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
