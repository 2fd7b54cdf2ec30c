"""The tokens that were issued for enrolment and for roles."""

from collections.abc import Callable, Sequence
from typing import Any

from offbeat_core.tokens import new_token, token_hash

from offbeat.service.accounts.registry import OWNER, AccountRegistry, Kind
from offbeat.service.accounts.sessions import Sessions
from offbeat.service.accounts.token_forms import PREFIXES
from offbeat.service.audit.audit_log import AuditLog
from offbeat.service.log.log import Change
from offbeat.service.log.log_writer import LogWriter
from offbeat.service.refusal import Refusal
from offbeat.service.server_messages import ListedToken

IN_FOLDER = "in the server's folder"
"""The name of the tokens in the files of the server's folder."""

_ID_DIGITS = 12


def token_id(token: str) -> str:
    """Return the id of a token in lists and logs."""
    return token_hash(token)[:_ID_DIGITS]


class IssuedTokens:
    """Makes, lists and revokes all tokens but the clients', sessions included."""

    def __init__(
        self,
        registry: AccountRegistry,
        sessions: Sessions,
        log_writer: LogWriter,
        audit: AuditLog,
        clock: Callable[[], float],
    ) -> None:
        self._registry = registry
        self._sessions = sessions
        self._log_writer = log_writer
        self._audit = audit
        self._clock = clock

    def infos(self, labels_of: Callable[[str], Sequence[str]] = lambda _: ()) -> list[ListedToken]:
        """Return all tokens, without the tokens themselves.

        ``labels_of`` returns the labels of a token's sites, by its SHA-256.
        """
        now = self._clock()
        return [
            ListedToken(
                id=hashed[:_ID_DIGITS],
                kind=account.kind,
                name=account.name,
                state=account.state(now),
                uses=account.uses,
                expires_seconds=None if account.expires is None else account.expires - now,
                labels=list(labels_of(hashed)),
            )
            for hashed, account in [*self._registry.issued.items(), *self._sessions.accounts.items()]
        ]

    def make(self, kind: Kind, *, uses: int | None = None, seconds: float | None = None, name: str = "") -> str:
        """Return a new token with a limit of uses and of seconds; None for no limit."""
        self._log_writer.check()
        token = new_token(PREFIXES[kind])
        expires = None if seconds is None else self._clock() + seconds
        values = {"token": token_hash(token), "kind": kind, "uses": uses, "expires": expires, "name": name}
        limits = {"uses": uses, "expires_seconds": seconds}
        self._change("make_token", values, "token made", token=token_id(token), of=kind, name=name, **limits)
        return token

    def revoke(self, token_id: str) -> None:
        """Revoke a token; ``no-such-token`` if none has this id."""
        known = [*self._registry.issued, *self._sessions.accounts]
        found = [hashed for hashed in known if hashed[:_ID_DIGITS] == token_id]
        if not found:
            raise Refusal(
                "no-such-token",
                f"there is no token {token_id[:100]!r}: list them with offbeat server tokens",
            )
        for hashed in found:
            if not self._sessions.end(hashed):
                self._revoke(hashed)

    def keep_in_folder(self, kind: Kind, token: str | None) -> None:
        """Revoke all tokens of a kind that the folder's files have held, except ``token``."""
        kept = None if token is None else token_hash(token)
        for hashed, account in self._registry.issued.items():
            if hashed != kept and account.kind == kind and account.name == IN_FOLDER and not account.revoked:
                self._revoke(hashed)

    def _revoke(self, hashed: str) -> None:
        self._change("revoke_token", {"token": hashed}, "token revoked", token=hashed[:_ID_DIGITS])

    def _change(self, change: str, values: dict[str, Any], kind: str, /, **facts: Any) -> None:
        self._registry.apply(change, values)
        self._audit.add(kind, Change(OWNER, change, values), **facts)
