"""Clients' accounts, and the check of all tokens."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import sqlalchemy as sa
from offbeat_core.tokens import looks_like, new_token, token_hash

from offbeat.service.accounts.declared_examples import DeclaredExamples
from offbeat.service.accounts.issued_tokens import IN_FOLDER, PREFIXES, Account, IssuedTokens, Kind, token_id
from offbeat.service.audit.audit_log import AuditLog
from offbeat.service.refusal import Refusal
from offbeat.service.store.database import clients
from offbeat.service.store.log_writer import LogWriter

_REMEDIES: dict[Kind, str] = {
    "enrolment": "ask for a new enrolment token",
    "client": "ask for a new enrolment token, and enrol again in another folder",
    "admin": "make another one on the server's machine: offbeat server tokens make FOLDER admin --output FILE",
}
_REMEDY_IN_FOLDER = "delete admin-token in the server's folder and start the server again, which makes another one"
_IF_UNKNOWN: dict[str, str] = {
    "enrolment": _REMEDIES["enrolment"],
    "client": "enrol again",
    "admin": "take the one in the file admin-token of the server's folder",
}
_CHALLENGE = {"WWW-Authenticate": "Bearer"}


@dataclass(slots=True)
class Site:
    """A named client; times are in Unix seconds."""

    name: str
    enrolled: float
    revoked: float | None = None  # None: not revoked


class Accounts:
    """All clients with the hashes of their tokens, in memory and in the database.

    At most ``clients_limit`` clients enrol. A client's token is valid for ``token_seconds``. ``clock`` returns Unix
    seconds. Where updates are private (``keeps_examples`` is false), numbers of examples are neither checked nor kept:
    they are clients' data, weigh nothing there, and must not decide who takes part.
    """

    def __init__(
        self,
        database: sa.Engine,
        log_writer: LogWriter,
        *,
        clients_limit: int,
        token_seconds: float | None,
        max_examples: int | None = None,
        keeps_examples: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.examples = DeclaredExamples(clients_limit, max_examples)
        self.audit = AuditLog(database, log_writer, clock)
        self.issued = IssuedTokens(database, log_writer, clock, self.audit)
        self._log_writer = log_writer
        self._limit = clients_limit
        self._keeps_examples = keeps_examples
        self._token_seconds = token_seconds
        self._clock = clock
        self._accounts: dict[str, Account] = {}  # by hash
        self.sites: dict[int, Site] = {}
        self._hashes: dict[int, str] = {}  # by client
        self._next_hashes: dict[int, str] = {}  # by client
        self._load(database)

    def _load(self, database: sa.Engine) -> None:
        with database.connect() as connection:
            rows = connection.execute(sa.select(clients)).all()
        for row in rows:
            client, is_revoked = row.client, row.revoked is not None
            self.sites[client] = Site(row.name, row.enrolled, row.revoked)
            self.examples.set(client, row.examples)
            if is_revoked:
                self.examples.revoke(client)
            self._hashes[client] = row.token
            self._accounts[row.token] = Account("client", client, expires=row.expires, revoked=is_revoked)
            if row.next_token:
                self._next_hashes[client] = row.next_token
                self._accounts[row.next_token] = Account(
                    "client", client, expires=row.next_expires, is_next=True, revoked=is_revoked
                )

    def __len__(self) -> int:
        """Return the number of enrolled clients."""
        return len(self._hashes)

    def check(self, token: str | None, kind: Kind) -> int:
        """Return the client of a valid token of this kind; −1 for other kinds' tokens."""
        if not token:
            raise Refusal("no-token", f"send Authorization: Bearer {PREFIXES[kind]}…", _CHALLENGE)
        account = self._account(token)
        if account is None:
            alike = [other for other, prefix in PREFIXES.items() if token.startswith(prefix)]
            advice = _IF_UNKNOWN[alike[0] if alike else kind]
            raise Refusal("unknown-token", f"this server does not know the token: {advice}", _CHALLENGE)
        if account.kind != kind:
            raise Refusal("foreign-token", f"the token is of the kind {account.kind}: send one of the kind {kind}")
        remedy = _REMEDY_IN_FOLDER if kind == "admin" and account.name == IN_FOLDER else _REMEDIES[kind]
        match account.state(self._clock()):
            case "expired":
                raise Refusal("expired-token", f"the token has expired: {remedy}", _CHALLENGE)
            case "revoked" | "used up" as state:
                raise Refusal("revoked-token", f"the token was {state}: {remedy}", _CHALLENGE)
            case "valid":
                pass
        if account.client is None:
            return -1
        if account.is_next:
            self._replace_token(account.client)
        return account.client

    def check_any(self, token: str | None, *, may_have_ended: bool) -> None:
        """Check a token of any kind before the request's body is read.

        ``may_have_ended`` also accepts a token that is used up, expired or revoked: a client whose enrolment was not
        answered asks again with the same enrolment token, and identifies itself by its own token.
        """
        account = self._account(token) if token else None
        if account is None or not may_have_ended:
            self.check(token, "client" if account is None else account.kind)

    def check_client(self, client: int) -> None:
        """Refuse a client that has been revoked since its request came."""
        if self._site(client).revoked is not None:
            raise Refusal("revoked-token", f"the token was revoked: {_REMEDIES['client']}", _CHALLENGE)

    def is_valid(self, token: str, kind: Kind) -> bool:
        """Return whether a token is valid and of this kind."""
        try:
            self.check(token, kind)
        except Refusal:
            return False
        return True

    def enrol(
        self, token: str | None, name: str, client_token: str | None = None, examples: int | None = None
    ) -> tuple[int, str, float | None]:
        """Return a new client's number, its token, and how long that is valid.

        A known ``client_token``, which clients make themselves, stands for the client that has it; None makes one here.
        """
        if not self._keeps_examples:
            examples = None
        if client_token is not None:
            if not looks_like(client_token, PREFIXES["client"]):
                raise Refusal("malformed-request", "token must be obc_ and 32 random bytes in url-safe base64")
            if token_hash(client_token) in self._accounts:
                client = self.check(client_token, "client")
                if examples is not None:
                    self.declare(client, examples)
                return client, client_token, self._token_seconds
        self.check(token, "enrolment")
        assert token is not None
        if examples is not None:
            self.examples.check_maximum(examples)
        self._log_writer.check()
        if len(self) >= self._limit:
            raise Refusal(
                "full",
                f"all {self._limit} clients have enrolled: use the folder of one of them, or begin a run "
                "with more service.clients in another service.folder",
            )
        self.issued.use(token_hash(token))
        client, client_token = len(self), client_token or new_token(PREFIXES["client"])
        hashed, expires = self._add(client, client_token)
        self._hashes[client] = hashed
        self.sites[client] = Site(name, self._clock())
        self.examples.set(client, examples)
        values = {"client": client, "name": name, "enrolled": self.sites[client].enrolled, "examples": examples}
        change = sa.insert(clients).values(values | {"token": hashed, "expires": expires})
        self.audit.add("client enrolled", change, client=client, name=name, token=token_id(token))
        return client, client_token, self._token_seconds

    def declare(self, client: int, examples: int) -> None:
        """Record how many examples a client holds, once."""
        if not self._keeps_examples:
            return
        self.examples.check(client, examples)
        if not self.examples.is_known(client):
            self._log_writer.check()
            self.examples.set(client, examples)
            self._update(client, examples=examples)

    def rotate(self, client: int) -> tuple[str, float | None]:
        """Return a token that replaces a client's once it is used, and its seconds."""
        self._log_writer.check()
        before = self._next_hashes.pop(client, None)
        if before:
            del self._accounts[before]
        token = new_token(PREFIXES["client"])
        hashed, expires = self._add(client, token, is_next=True)
        self._next_hashes[client] = hashed
        self._update(client, next_token=hashed, next_expires=expires)
        self.audit.count("client tokens", "renewed")
        return token, self._token_seconds

    def revoke(self, client: int) -> None:
        """Revoke a client's tokens."""
        site = self._site(client)
        for hashed in filter(None, (self._hashes[client], self._next_hashes.get(client))):
            self._accounts[hashed].revoked = True
        if site.revoked is None:
            site.revoked = self._clock()
        self.examples.revoke(client)
        self.audit.add("client revoked", self._change(client, revoked=site.revoked), client=client)

    def rename(self, client: int, name: str) -> None:
        """Give a client another name."""
        site = self._site(client)
        self._log_writer.check()
        if site.name != name:
            before, site.name = site.name, name
            self.audit.add("client renamed", self._change(client, name=name), client=client, name=name, before=before)

    def _site(self, client: int) -> Site:
        if client not in self.sites:
            raise Refusal("no-such-client", f"no client {client} has enrolled")
        return self.sites[client]

    def _account(self, token: str) -> Account | None:
        if not any(looks_like(token, prefix) for prefix in PREFIXES.values()):
            return None
        hashed = token_hash(token)
        return self._accounts.get(hashed) or self.issued.get(hashed)

    def _add(self, client: int, token: str, *, is_next: bool = False) -> tuple[str, float | None]:
        hashed = token_hash(token)
        expires = None if self._token_seconds is None else self._clock() + self._token_seconds
        self._accounts[hashed] = Account("client", client, expires=expires, is_next=is_next)
        return hashed, expires

    def _replace_token(self, client: int) -> None:
        hashed, before = self._next_hashes.pop(client), self._hashes[client]
        account = self._accounts[hashed]
        account.is_next = False
        del self._accounts[before]
        self._hashes[client] = hashed
        self._update(client, token=hashed, expires=account.expires, next_token=None, next_expires=None)

    def _update(self, client: int, **values: object) -> None:
        self._log_writer.execute(self._change(client, **values))

    def _change(self, client: int, **values: object) -> sa.Executable:
        return sa.update(clients).where(clients.c.client == client).values(**values)


class RequestRate:
    """A token bucket for each client, which can make ``burst`` requests at once."""

    def __init__(self, requests_a_second: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._requests_a_second = requests_a_second
        self._burst = float(burst)
        self._clock = clock
        self._buckets: dict[int, tuple[float, float]] = {}  # by client: tokens left, and when

    def take(self, client: int) -> None:
        """Take one of the client's tokens; ``too-many-requests`` if the bucket is empty."""
        now = self._clock()
        left, then = self._buckets.get(client, (self._burst, now))
        left = min(left + (now - then) * self._requests_a_second, self._burst) - 1
        if left < 0:
            raise Refusal("too-many-requests", "too many requests: wait a while", {"Retry-After": "1"})
        self._buckets[client] = (left, now)
