"""Who may speak: tokens, and the clients behind them."""

import time
from collections.abc import Callable

import sqlalchemy as sa

from offbeat.service.accounts.account import Account, Kind, TokenInfo
from offbeat.service.accounts.declared_examples import DeclaredExamples
from offbeat.service.refusal import Refusal
from offbeat.service.store.journal import Journal
from offbeat.service.store.store import clients, other_tokens
from offbeat_client.tokens import looks_like, new_token, token_hash

IN_FOLDER = "in the server's folder"
"""The name of the tokens that the server puts into its folder."""

_ID_DIGITS = 12
_REMEDIES: dict[Kind, str] = {
    "enrolment": "ask for a new enrolment token",
    "client": "ask for a new enrolment token, and enrol again in another folder",
    "admin": "delete admin-token in the server's folder and start the server again, which makes another one",
}
PREFIXES: dict[Kind, str] = {"enrolment": "obe_", "client": "obc_", "admin": "oba_"}


class Accounts:
    """All tokens' hashes, in memory and in the database.

    Args:
        database: Where they are.
        journal: Where changes are entered.
        clients_limit: Number of clients N.
        token_seconds: How long a client's token is good for; None for ever.
        max_examples: The largest number of examples that a client may declare; None for any.
        clock: Unix seconds.

    Attributes:
        examples: How many examples clients have declared.
    """

    def __init__(
        self,
        database: sa.Engine,
        journal: Journal,
        *,
        clients_limit: int,
        token_seconds: float | None,
        max_examples: int | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._journal = journal
        self._limit = clients_limit
        self._token_seconds = token_seconds
        self.examples = DeclaredExamples(clients_limit, max_examples)
        self._clock = clock
        self._accounts: dict[str, Account] = {}
        self._token_of: dict[int, str | None] = {}  # by client; None: revoked
        self._next_of: dict[int, str] = {}
        with database.connect() as connection:
            for client, _, token, expires, following, following_expires, examples in connection.execute(
                sa.select(clients)
            ):
                self.examples.set(client, examples)
                self._token_of[client] = token
                if token is None:
                    self.examples.revoke(client)
                else:
                    self._accounts[token] = Account("client", client, expires=expires)
                if following:
                    self._next_of[client] = following
                    self._accounts[following] = Account("client", client, expires=following_expires, is_next=True)
            for token, kind, uses, expires, name, revoked in connection.execute(sa.select(other_tokens)):
                self._accounts[token] = Account(
                    kind, uses=uses, expires=expires, revoked=revoked is not None, name=name
                )

    def __len__(self) -> int:
        """How many clients have enrolled."""
        return len(self._token_of)

    def check(self, token: str | None, kind: Kind) -> int:
        """Return whose token it is, −1 for nobody's.

        Raises:
            Refusal: It is not good for this.
        """
        if not token:
            raise Refusal("no-token", f"send Authorization: Bearer {PREFIXES[kind]}…", _CHALLENGE)
        account = self._accounts.get(token_hash(token)) if _has_form(token) else None
        if account is None:
            raise Refusal("unknown-token", "this server does not know the token: enrol again", _CHALLENGE)
        if account.kind != kind:
            raise Refusal("foreign-token", f"this is the {account.kind}'s token, a {kind} token is needed")
        if account.revoked or account.uses == 0:
            what = "used up" if account.uses == 0 else "revoked"
            raise Refusal("revoked-token", f"the token was {what}: {_REMEDIES[kind]}", _CHALLENGE)
        if account.expires is not None and account.expires <= self._clock():
            raise Refusal("expired-token", f"the token has expired: {_REMEDIES[kind]}", _CHALLENGE)
        if account.is_next and account.client is not None:
            self._take_over(account.client)
        return -1 if account.client is None else account.client

    def check_any(self, token: str | None, *, may_have_ended: bool) -> None:
        """Check that a token is known, before a body is read.

        Args:
            token: Of any kind.
            may_have_ended: Whether one that has been used up, has expired or was revoked will do: a client whose
                enrolment was not answered asks again with the enrolment token, and proves itself by its own.

        Raises:
            Refusal: There is none, or it is not valid.
        """
        account = self._accounts.get(token_hash(token)) if token and _has_form(token) else None
        if account is None or not may_have_ended:
            self.check(token, "client" if account is None else account.kind)

    def check_client(self, client: int) -> None:
        """Raise ``Refusal`` if a client has been revoked since its request came."""
        if self._token_of.get(client) is None:
            raise Refusal("revoked-token", f"the token was revoked: {_REMEDIES['client']}", _CHALLENGE)

    def knows(self, token: str, kind: Kind) -> bool:
        """Return whether a token is good for this."""
        try:
            self.check(token, kind)
        except Refusal:
            return False
        return True

    def enrol(
        self, token: str | None, name: str, own: str | None = None, examples: int | None = None
    ) -> tuple[int, str, float | None]:
        """Return a new client's number, its token, and how long that is good for.

        Args:
            token: The enrolment token.
            name: The client's, for people.
            own: The token that the client has made for itself; the same one again is the same client.
            examples: How many examples the client holds; None if it does not say so yet.

        Raises:
            Refusal: The enrolment token is not good, the client's own has not the right form, there are N clients
                already, or the examples are too many or others than before.
        """
        if own is not None:
            if not looks_like(own, PREFIXES["client"]):
                raise Refusal("malformed-request", "token must be obc_ and 32 random bytes in url-safe base64")
            known = self._accounts.get(token_hash(own))
            if known is not None:
                client = self.check(own, "client")
                if examples is not None:
                    self.declare(client, examples)
                return client, own, self._token_seconds
        self.check(token, "enrolment")
        assert token is not None
        if examples is not None:
            self.examples.check_most(examples)
        self._journal.check()
        if len(self._token_of) >= self._limit:
            raise Refusal("full", f"all {self._limit} clients have enrolled: raise service.clients")
        self._use(token_hash(token))
        client, made = len(self._token_of), own or new_token(PREFIXES["client"])
        hashed, expires = token_hash(made), self._expiry()
        self._token_of[client] = hashed
        self._accounts[hashed] = Account("client", client, expires=expires)
        self.examples.set(client, examples)
        values = {"client": client, "name": name, "token": hashed, "expires": expires, "examples": examples}
        self._journal.execute(sa.insert(clients).values(values))
        return client, made, self._token_seconds

    def declare(self, client: int, examples: int) -> None:
        """Record how many examples a client holds, once.

        Raises:
            Refusal: Too many, or another number than before.
        """
        self.examples.check(client, examples)
        if not self.examples.is_known(client):
            self._journal.check()
            self.examples.set(client, examples)
            self._update(client, examples=examples)

    def rotate(self, client: int) -> tuple[str, float | None]:
        """Return another token for a client; the one that it has ends when this one is first used."""
        self._journal.check()
        before = self._next_of.pop(client, None)
        if before:
            del self._accounts[before]
        made = new_token(PREFIXES["client"])
        hashed, expires = token_hash(made), self._expiry()
        self._next_of[client] = hashed
        self._accounts[hashed] = Account("client", client, expires=expires, is_next=True)
        self._update(client, next_token=hashed, next_expires=expires)
        return made, self._token_seconds

    def revoke(self, client: int) -> None:
        """Let nobody speak for a client any more.

        Raises:
            Refusal: There is no such client.
        """
        if client not in self._token_of:
            raise Refusal("no-such-client", f"no client {client} has enrolled")
        for hashed in (self._token_of[client], self._next_of.pop(client, None)):
            if hashed:
                self._accounts[hashed].revoked = True
        self._token_of[client] = None
        self.examples.revoke(client)
        self._update(client, token=None, expires=None, next_token=None, next_expires=None)

    def tokens(self) -> list[TokenInfo]:
        """Return all enrolment and admin tokens."""
        now = self._clock()
        return [
            TokenInfo(
                id=hashed[:_ID_DIGITS],
                kind=account.kind,
                name=account.name or "",
                state=account.state(now),
                uses=account.uses,
                expires_seconds=None if account.expires is None else account.expires - now,
            )
            for hashed, account in self._accounts.items()
            if account.kind != "client"
        ]

    def revoke_token(self, which: str) -> None:
        """Revoke an enrolment or admin token.

        Raises:
            Refusal: There is no token with this id.
        """
        found = [
            hashed
            for hashed, account in self._accounts.items()
            if account.kind != "client" and hashed[:_ID_DIGITS] == which
        ]
        if not found:
            raise Refusal(
                "no-such-token", f"there is no token {which[:100]!r}: list them, for instance by offbeat tokens"
            )
        for hashed in found:
            self._accounts[hashed].revoked = True
            self._change_token(hashed, revoked=self._clock())

    def keep_for_folder(self, token: str | None, kind: Kind) -> bool:
        """Return whether a token of the server's folder is valid, and revoke those that the folder had before.

        Args:
            token: What is in the folder's file; None if the file is missing.
            kind: Enrolment or admin.
        """
        is_valid = token is not None and self.knows(token, kind)
        kept = token_hash(token) if token is not None and is_valid else None
        for hashed, account in self._accounts.items():
            if hashed != kept and account.kind == kind and account.name == IN_FOLDER and not account.revoked:
                account.revoked = True
                self._change_token(hashed, revoked=self._clock())
        return is_valid

    def make(self, kind: Kind, *, uses: int | None = None, seconds: float | None = None, name: str = "") -> str:
        """Return a new enrolment or admin token that is good for so many uses and seconds."""
        self._journal.check()
        made = new_token(PREFIXES[kind])
        hashed = token_hash(made)
        expires = None if seconds is None else self._clock() + seconds
        self._accounts[hashed] = Account(kind, uses=uses, expires=expires, name=name)
        values = {"token": hashed, "kind": kind, "uses": uses, "expires": expires, "name": name}
        self._journal.execute(sa.insert(other_tokens).values(values))
        return made

    def _use(self, hashed: str) -> None:
        account = self._accounts[hashed]
        if account.uses is None:
            return
        account.uses -= 1
        self._change_token(hashed, uses=account.uses)

    def _take_over(self, client: int) -> None:
        hashed, before = self._next_of.pop(client), self._token_of[client]
        account = self._accounts[hashed]
        account.is_next = False
        if before:
            del self._accounts[before]
        self._token_of[client] = hashed
        self._update(client, token=hashed, expires=account.expires, next_token=None, next_expires=None)

    def _change_token(self, hashed: str, **values: object) -> None:
        row = other_tokens.c.token == hashed
        self._journal.execute(sa.update(other_tokens).where(row).values(**values))

    def _update(self, client: int, **values: object) -> None:
        self._journal.execute(sa.update(clients).where(clients.c.client == client).values(**values))

    def _expiry(self) -> float | None:
        return None if self._token_seconds is None else self._clock() + self._token_seconds


def _has_form(token: str) -> bool:
    return any(looks_like(token, prefix) for prefix in PREFIXES.values())


_CHALLENGE = {"WWW-Authenticate": "Bearer"}
