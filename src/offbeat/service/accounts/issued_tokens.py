"""Accounts, and the enrolment and admin tokens that were issued."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import sqlalchemy as sa
from offbeat_core.tokens import new_token, token_hash

from offbeat.service.audit.audit_log import AuditLog
from offbeat.service.refusal import Refusal
from offbeat.service.server_messages import ListedToken
from offbeat.service.store.database import other_tokens
from offbeat.service.store.log_writer import LogWriter

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


IN_FOLDER = "in the server's folder"
"""The name of the tokens in the files of the server's folder."""

_ID_DIGITS = 12


def token_id(token: str) -> str:
    """Return the id of a token in lists and logs."""
    return token_hash(token)[:_ID_DIGITS]


class IssuedTokens:
    """All enrolment and admin tokens' hashes, in memory and in the database."""

    def __init__(self, database: sa.Engine, log_writer: LogWriter, clock: Callable[[], float], audit: AuditLog) -> None:
        self._log_writer = log_writer
        self._clock = clock
        self._audit = audit
        self._accounts: dict[str, Account] = {}  # by hash
        with database.connect() as connection:
            for hashed, kind, uses, expires, name, revoked in connection.execute(sa.select(other_tokens)):
                is_revoked = revoked is not None
                self._accounts[hashed] = Account(kind, uses=uses, expires=expires, revoked=is_revoked, name=name)

    def get(self, hashed: str) -> Account | None:
        """Return the account of a token's hash, None if it is unknown."""
        return self._accounts.get(hashed)

    def infos(self) -> list[ListedToken]:
        """Return all tokens, without the tokens themselves."""
        now = self._clock()
        return [
            ListedToken(
                id=hashed[:_ID_DIGITS],
                kind=account.kind,
                name=account.name,
                state=account.state(now),
                uses=account.uses,
                expires_seconds=None if account.expires is None else account.expires - now,
            )
            for hashed, account in self._accounts.items()
        ]

    def make(self, kind: Kind, *, uses: int | None = None, seconds: float | None = None, name: str = "") -> str:
        """Return a new token with a limit of uses and of seconds; None for no limit."""
        self._log_writer.check()
        token = new_token(PREFIXES[kind])
        hashed = token_hash(token)
        expires = None if seconds is None else self._clock() + seconds
        self._accounts[hashed] = Account(kind, uses=uses, expires=expires, name=name)
        values = {"token": hashed, "kind": kind, "uses": uses, "expires": expires, "name": name}
        limits = {"uses": uses, "expires_seconds": seconds}
        change = sa.insert(other_tokens).values(values)
        self._audit.add("token made", change, token=token_id(token), of=kind, name=name, **limits)
        return token

    def use(self, hashed: str) -> None:
        """Count a use of a token."""
        account = self._accounts[hashed]
        if account.uses is not None:
            account.uses -= 1
            self._update(hashed, uses=account.uses)

    def revoke(self, token_id: str) -> None:
        """Revoke a token; ``no-such-token`` if none has this id."""
        found = [hashed for hashed in self._accounts if hashed[:_ID_DIGITS] == token_id]
        if not found:
            raise Refusal(
                "no-such-token",
                f"there is no token {token_id[:100]!r}: list them with offbeat server tokens",
            )
        for hashed in found:
            self._revoke(hashed)

    def keep_in_folder(self, kind: Kind, token: str | None) -> None:
        """Revoke all tokens of a kind that the folder's files have held, except ``token``."""
        kept = None if token is None else token_hash(token)
        for hashed, account in self._accounts.items():
            if hashed != kept and account.kind == kind and account.name == IN_FOLDER and not account.revoked:
                self._revoke(hashed)

    def _revoke(self, hashed: str) -> None:
        self._accounts[hashed].revoked = True
        change = self._change(hashed, revoked=self._clock())
        self._audit.add("token revoked", change, token=hashed[:_ID_DIGITS])

    def _update(self, hashed: str, **values: object) -> None:
        self._log_writer.execute(self._change(hashed, **values))

    def _change(self, hashed: str, **values: object) -> sa.Executable:
        return sa.update(other_tokens).where(other_tokens.c.token == hashed).values(**values)
