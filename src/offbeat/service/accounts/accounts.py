"""Clients' accounts, and the check of all tokens."""

import time
from collections.abc import Callable
from typing import Any

from offbeat_core.tokens import looks_like, new_token, token_hash

from offbeat.service.accounts.declared_examples import DeclaredExamples
from offbeat.service.accounts.issued_tokens import IN_FOLDER, IssuedTokens, token_id
from offbeat.service.accounts.registry import OWNER, Account, AccountRegistry, Kind, Site, suffices
from offbeat.service.accounts.sessions import Sessions
from offbeat.service.accounts.token_forms import CHALLENGE, PREFIXES, hash_of, unknown_token
from offbeat.service.audit.audit_log import AuditLog
from offbeat.service.log.log import Change
from offbeat.service.log.log_writer import LogWriter
from offbeat.service.refusal import Refusal

_REMEDIES: dict[Kind, str] = {
    "enrolment": "ask for a new enrolment token",
    "client": "ask for a new enrolment token, and enrol again in another folder",
    "session": "log in again",
    "viewer": "ask an admin for another one",
    "operator": "ask an admin for another one",
    "admin": "make another one on the server's machine: offbeat server tokens make FOLDER admin --output FILE",
}
_REMEDY_IN_FOLDER = "delete admin-token in the server's folder and start the server again, which makes another one"


class Accounts:
    """The rules for clients and their tokens; what they change is in the ``registry``.

    At most ``clients_limit`` clients enrol. A client's token is valid for ``token_seconds``. ``clock`` returns Unix
    seconds. Where updates are private (``keeps_examples`` is false), numbers of examples are neither checked nor kept:
    they are clients' data, weigh nothing there, and must not decide who takes part.
    """

    def __init__(
        self,
        registry: AccountRegistry,
        log_writer: LogWriter,
        audit: AuditLog,
        *,
        clients_limit: int,
        token_seconds: float | None,
        max_examples: int | None = None,
        keeps_examples: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.audit = audit
        self.sites = registry.sites
        self.examples = DeclaredExamples(self.sites, clients_limit, max_examples)
        self.sessions = Sessions(audit, clock)
        self.issued = IssuedTokens(registry, self.sessions, log_writer, audit, clock)
        self._registry = registry
        self._log_writer = log_writer
        self._limit = clients_limit
        self._keeps_examples = keeps_examples
        self._token_seconds = token_seconds
        self._clock = clock

    def __len__(self) -> int:
        """Return the number of enrolled clients."""
        return len(self.sites)

    def check(self, token: str | None, kind: Kind) -> int:
        """Return the client of a valid token of this kind; −1 for other kinds' tokens.

        A role's token is also accepted where a lesser role's is needed.
        """
        hashed = hash_of(token, kind)
        if self._find(hashed) is not None:
            return self.check_hash(hashed, kind)
        raise unknown_token(token or "", kind)

    def check_hash(self, hashed: str, kind: Kind) -> int:
        """Return as ``check``, for the SHA-256 of a token."""
        account = self._find(hashed)
        if account is None:
            raise unknown_token("", kind)
        if not suffices(account.kind, kind):
            raise Refusal("foreign-token", f"the token is of the kind {account.kind}: send one of the kind {kind}")
        is_in_folder = account.kind == "admin" and account.name == IN_FOLDER
        remedy = _REMEDIES["session" if hashed in self.sessions.accounts else account.kind]
        remedy = _REMEDY_IN_FOLDER if is_in_folder else remedy
        match account.state(self._clock()):
            case "expired":
                raise Refusal("expired-token", f"the token has expired: {remedy}", CHALLENGE)
            case "revoked" | "used up" as state:
                raise Refusal("revoked-token", f"the token was {state}: {remedy}", CHALLENGE)
            case "valid":
                pass
        if account.client is None:
            return -1
        if account.is_next:
            self._change("replace", {"client": account.client})
        return account.client

    def role_of(self, token: str) -> str:
        """Return the kind of a token that is known."""
        account = self._find(token_hash(token))
        assert account is not None
        return account.kind

    def actor_of(self, token: str) -> str:
        """Return the audit log's name for a known token: a person, or the token's id."""
        session = self.sessions.accounts.get(token_hash(token))
        return token_id(token) if session is None else session.name

    def holder_of(self, token: str) -> tuple[Kind, int | None]:
        """Return the kind of a token that is known, and its client; None without."""
        account = self._find(token_hash(token))
        assert account is not None
        return account.kind, account.client

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
            raise Refusal("revoked-token", f"the token was revoked: {_REMEDIES['client']}", CHALLENGE)

    def is_valid(self, token: str, kind: Kind) -> bool:
        """Return whether a token is valid and of this kind."""
        try:
            self.check(token, kind)
        except Refusal:
            return False
        return True

    async def wait_until_durable(self) -> None:
        """Wait until all changes so far are on disk."""
        await self._log_writer.wait_until_durable()

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
            if token_hash(client_token) in self._registry.accounts:
                client = self.check(client_token, "client")
                if examples is not None:
                    self.declare(client, examples)
                return client, client_token, self._token_seconds
        self.check(token, "enrolment")
        assert token is not None
        if examples is not None:
            self.examples.check_maximum(examples)
        client_token = client_token or new_token(PREFIXES["client"])
        client = self._add(name, token_hash(client_token), examples, token_hash(token), token=token_id(token))
        return client, client_token, self._token_seconds

    def _add(self, name: str, hashed: str, examples: int | None, by: str | None, **facts: Any) -> int:
        """Return the number of a new client; ``full``."""
        self._log_writer.check()
        if len(self) >= self._limit:
            raise Refusal(
                "full",
                f"all {self._limit} clients have enrolled: use the folder of one of them, or begin a run "
                "with more service.clients in another service.folder",
            )
        client = len(self)
        values = {"client": client, "name": name, "at": self._clock(), "examples": examples, "by": by}
        values |= {"token": hashed, "expires": self._expires()}
        self._change("enrol", values, "client enrolled", client=client, **facts)
        return client

    def grow(self, clients: int) -> None:
        """Let so many clients enrol."""
        self._limit = clients
        self.examples.grow(clients)

    def declare(self, client: int, examples: int) -> None:
        """Record how many examples a client holds, once."""
        if not self._keeps_examples:
            return
        self.examples.check(client, examples)
        if not self.examples.is_known(client):
            self._log_writer.check()
            self._change("declare", {"client": client, "examples": examples})

    def rotate(self, client: int) -> tuple[str, float | None]:
        """Return a token that replaces a client's once it is used, and its seconds."""
        self._log_writer.check()
        token = new_token(PREFIXES["client"])
        self._change("renew", {"client": client, "token": token_hash(token), "expires": self._expires()})
        self.audit.count("client tokens", "renewed")
        return token, self._token_seconds

    def revoke(self, client: int) -> None:
        """Revoke a client's tokens."""
        at = self._site(client).revoked or self._clock()
        self._change("revoke_client", {"client": client, "at": at}, "client revoked", client=client)

    def forget(self, client: int) -> None:
        """Delete a client's name, tokens and number of examples.

        Entries of the audit log, whose chain lasts, do not have them.
        """
        at = self._site(client).revoked or self._clock()
        self._log_writer.check()
        self._change("forget_client", {"client": client, "at": at}, "client forgotten", client=client)

    @property
    def forgotten(self) -> set[int]:
        """The clients whose data were deleted, or are being deleted."""
        return self._registry.forgotten

    def note_forgotten(self, client: int) -> None:
        """Record that nothing else is held of a client that was to be forgotten."""
        self._change("forgot_client", {"client": client})

    def rename(self, client: int, name: str) -> None:
        """Give a client another name."""
        site = self._site(client)
        if site.forgotten is not None:
            raise Refusal("no-such-client", f"client {client} was forgotten")
        self._log_writer.check()
        if site.name != name:
            values = {"client": client, "name": name}
            self._change("rename", values, "client renamed", client=client)

    def _site(self, client: int) -> Site:
        if client not in self.sites:
            raise Refusal("no-such-client", f"no client {client} has enrolled")
        return self.sites[client]

    def _account(self, token: str) -> Account | None:
        if not any(looks_like(token, prefix) for prefix in PREFIXES.values()):
            return None
        return self._find(token_hash(token))

    def _find(self, hashed: str) -> Account | None:
        return self._registry.accounts.get(hashed) or self.sessions.accounts.get(hashed)

    def _expires(self) -> float | None:
        return None if self._token_seconds is None else self._clock() + self._token_seconds

    def _change(self, change: str, values: dict[str, Any], kind: str | None = None, /, **facts: Any) -> None:
        """Change the registry and the log; a ``kind`` is that of the audit log's entry."""
        self._registry.apply(change, values)
        if kind is None:
            self._log_writer.enter(Change(OWNER, change, values))
        else:
            self.audit.add(kind, Change(OWNER, change, values), **facts)
