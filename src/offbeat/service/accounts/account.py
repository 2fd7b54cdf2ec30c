"""Accounts: what a token is good for."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["enrolment", "client", "admin"]
State = Literal["valid", "expired", "used up", "revoked"]

PREFIXES: dict[Kind, str] = {"enrolment": "obe_", "client": "obc_", "admin": "oba_"}
"""The beginning of each kind of token."""


@dataclass
class Account:
    """The state of one token.

    Attributes:
        kind: What the token is for.
        client: The client that a client's token belongs to.
        uses: How many uses are left; None for any number.
        expires: Unix seconds; None for never.
        is_next: Whether the token replaces the client's token when it is first used.
        revoked: Whether the token is revoked.
        name: For people; None if an earlier version made the token.
    """

    kind: Kind
    client: int | None = None
    uses: int | None = None
    expires: float | None = None
    is_next: bool = False
    revoked: bool = False
    name: str | None = ""

    def state(self, now: float) -> State:
        """Return whether the token is valid, or why not."""
        if self.revoked:
            return "revoked"
        if self.uses == 0:
            return "used up"
        return "expired" if self.expires is not None and self.expires <= now else "valid"


@dataclass(frozen=True)
class TokenInfo:
    """An enrolment or admin token, without the token itself.

    Attributes:
        id: The beginning of the token's hash.
        kind: Enrolment or admin.
        name: For people.
        state: Whether the token is valid.
        uses: How many uses are left; None for any number.
        expires_seconds: Until the token expires; None for never.
    """

    id: str
    kind: Kind
    name: str
    state: State
    uses: int | None
    expires_seconds: float | None
