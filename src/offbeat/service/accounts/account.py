"""Accounts: the states of tokens."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["enrolment", "client", "admin"]
State = Literal["valid", "expired", "used up", "revoked"]

PREFIXES: dict[Kind, str] = {"enrolment": "obe_", "client": "obc_", "admin": "oba_"}
"""The beginning of each kind of token."""


@dataclass
class Account:
    """The state of one token."""

    kind: Kind
    client: int | None = None  # that a client's token belongs to
    uses: int | None = None  # left; None for any number
    expires: float | None = None  # Unix seconds; None for never
    is_next: bool = False  # replaces the client's token when it is first used
    revoked: bool = False
    name: str = ""  # for people

    def state(self, now: float) -> State:
        """Return whether the token is valid, or why not."""
        if self.revoked:
            return "revoked"
        if self.uses == 0:
            return "used up"
        return "expired" if self.expires is not None and self.expires <= now else "valid"
