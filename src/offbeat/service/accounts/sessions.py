"""The sessions of people who have logged in."""

import time
from collections.abc import Callable

from offbeat_core.tokens import new_token, token_hash

from offbeat.service.accounts.registry import Account, Role
from offbeat.service.accounts.token_forms import PREFIXES
from offbeat.service.audit.audit_log import AuditLog

SECONDS = 8 * 3600.0
"""How long a session is valid: a working day."""

_MOST = 1000
_MOST_OF_ONE = 10  # so that nobody can push out all others


class Sessions:
    """Accounts of sessions, by the SHA-256 of their tokens.

    An account's name is ``sub:`` and the provider's id of the person. They are in memory only: when the server
    restarts, people log in again. Beyond 10 of one person and 1,000 of all, the oldest ends.
    """

    def __init__(self, audit: AuditLog, clock: Callable[[], float] = time.time) -> None:
        self.accounts: dict[str, Account] = {}  # the oldest first
        self._audit = audit
        self._clock = clock

    def begin(self, subject: str, role: Role) -> str:
        """Return the token of a new session of a person."""
        now = self._clock()
        self.accounts = {hashed: one for hashed, one in self.accounts.items() if one.state(now) == "valid"}
        person = f"sub:{subject}"
        own = [hashed for hashed, one in self.accounts.items() if one.name == person]
        if len(own) >= _MOST_OF_ONE:
            del self.accounts[own[0]]
        elif len(self.accounts) >= _MOST:
            del self.accounts[next(iter(self.accounts))]
        token = new_token(PREFIXES["session"])
        self.accounts[token_hash(token)] = Account(role, expires=now + SECONDS, name=person)
        self._audit.add("person logged in", person=person, role=role)
        return token

    def end(self, hashed: str) -> bool:
        """End a session; return whether there was one."""
        account = self.accounts.pop(hashed, None)
        if account is not None:
            self._audit.add("person logged out", person=account.name)
        return account is not None
