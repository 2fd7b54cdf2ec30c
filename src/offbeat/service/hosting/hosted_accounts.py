"""The accounts of a run on a server of several runs: sites keep their tokens."""

from typing import Any

from offbeat_core.tokens import token_hash

from offbeat.service.accounts.accounts import Accounts
from offbeat.service.accounts.registry import HOSTED, Kind
from offbeat.service.accounts.token_forms import hash_of
from offbeat.service.refusal import Refusal


class HostedAccounts(Accounts):
    """The run's own clients and tokens, and the server's.

    A site that the run has admitted is one of its clients, by the token that it has at the server. A role's token of
    the server has that role here, too. A token that was made for this run alone is valid nowhere else.

    Args:
        home: The server's sites and tokens.
        run: The run's name, for messages.
    """

    def __init__(self, home: Accounts, run: str, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._home = home
        self._run = run

    def check(self, token: str | None, kind: Kind) -> int:
        """Return the client of a valid token; see ``Accounts``."""
        if kind == "enrolment" or self._is_own(hash_of(token, kind)):
            return super().check(token, kind)
        return self._client(self._home.check(token, kind), kind)

    def check_hash(self, hashed: str, kind: Kind) -> int:
        """Return as ``check``, for the SHA-256 of a token."""
        if self._is_own(hashed):
            return super().check_hash(hashed, kind)
        return self._client(self._home.check_hash(hashed, kind), kind)

    def _client(self, site: int, kind: Kind) -> int:
        """Return the client that a site is here; −1 for a role's token."""
        if site < 0:
            return site
        if self.client_of(site) is None:
            raise no_such_run(self._run)
        return super().check_hash(_key(site), kind)

    def _is_own(self, hashed: str) -> bool:
        return self._find(hashed) is not None

    def check_any(self, token: str | None, *, may_have_ended: bool) -> None:
        """Check a token of any kind; see ``Accounts``."""
        if token and self._account(token) is not None:
            super().check_any(token, may_have_ended=may_have_ended)
            return
        self._home.check_any(token, may_have_ended=False)
        kind, site = self._home.holder_of(token or "")
        if kind == "enrolment" or (site is not None and self.client_of(site) is None):
            raise no_such_run(self._run)

    def role_of(self, token: str) -> str:
        """Return the kind of a token that is known."""
        return super().role_of(token) if self._is_own(token_hash(token)) else self._home.role_of(token)

    def actor_of(self, token: str) -> str:
        """Return the audit log's name for a known token; see ``Accounts``."""
        return super().actor_of(token) if self._is_own(token_hash(token)) else self._home.actor_of(token)

    def client_of(self, site: int) -> int | None:
        """Return the site's number as a client of this run; None if it is none."""
        account = self._registry.accounts.get(_key(site))
        return None if account is None else account.client

    @property
    def has_own_tokens(self) -> bool:
        """Return whether the run has valid tokens that the server does not know."""
        now = self._clock()
        return any(
            not hashed.startswith(HOSTED) and account.state(now) == "valid"
            for hashed, account in self._registry.accounts.items()
        )

    @property
    def is_full(self) -> bool:
        """Return whether no other site can take part."""
        return len(self) >= self._limit

    def admit(self, site: int, name: str) -> int:
        """Return a site's number as a client, a new one if need be; ``full``."""
        if (client := self.client_of(site)) is not None:
            return client
        return self._add(name, _key(site), None, None, site=site)

    def rotate(self, client: int) -> tuple[str, float | None]:
        """Return another token; that of a site is the server's business."""
        if self.sites[client].token.startswith(HOSTED):
            raise Refusal("foreign-token", "the token is the server's: renew it at the server's own /v1/token")
        return super().rotate(client)


def no_such_run(run: str) -> Refusal:
    """Return the refusal for a run that is not there.

    A run that has not admitted a site is not there for it.
    """
    return Refusal("no-such-run", f"there is no run {run[:64]!r} for this token: offbeat server runs lists all")


def _key(site: int) -> str:
    return f"{HOSTED}{site}"
