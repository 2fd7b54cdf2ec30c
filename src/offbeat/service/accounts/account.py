"""One token: what it is good for, and whether it is valid."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["enrolment", "client", "admin"]
State = Literal["valid", "expired", "used up", "revoked"]


@dataclass
class Account:
    """What is known of one token, by its hash."""

    kind: Kind
    client: int | None = None
    uses: int | None = None  # that are left; None: any number
    expires: float | None = None  # Unix seconds
    is_next: bool = False  # takes the place of the client's token when it is first used
    revoked: bool = False
    name: str | None = ""  # for people; None: made by an earlier version

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
        id: The beginning of its hash.
        kind: Enrolment or admin.
        name: For people.
        state: Whether it is valid.
        uses: How many are left; None for any number.
        expires_seconds: Until it expires; None for never.
    """

    id: str
    kind: Kind
    name: str
    state: State
    uses: int | None
    expires_seconds: float | None
