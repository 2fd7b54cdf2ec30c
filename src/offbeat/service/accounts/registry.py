"""Clients and tokens, as the log's rows make them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from offbeat.service.log.log import Row

OWNER = "accounts"
"""The owner of the log's rows that change the registry."""

Role = Literal["viewer", "operator", "admin"]
"""The part of a person or a program that looks after the server; each may do all that those before it may."""

Kind = Literal["enrolment", "client", "session"] | Role
State = Literal["valid", "expired", "used up", "revoked"]

HOSTED = "site-"
"""The beginning of what stands for a client's token in a run of a server of several runs; its number there follows."""

_ROLES = get_args(Role)
_REDACTED = frozenset({"declare", "rename", "renew", "replace"})


@dataclass(slots=True)
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


@dataclass(slots=True)
class Site:
    """A named client; times are in Unix seconds."""

    name: str
    enrolled: float
    token: str  # SHA-256
    next_token: str | None = None  # that of the token that replaces it
    examples: int | None = None  # None: not declared
    revoked: float | None = None  # None: not revoked
    forgotten: Literal["begun", "done"] | None = None  # how far the deletion of what is held of it has come

    @property
    def identity(self) -> str:
        """The site's number at a server of several runs; else the client's name."""
        return self.token if self.token.startswith(HOSTED) else self.name


def suffices(held: Kind, needed: Kind) -> bool:
    """Return whether a token of one kind may be sent where another one is needed."""
    if held in _ROLES and needed in _ROLES:
        return _ROLES.index(held) >= _ROLES.index(needed)
    return held == needed


class AccountRegistry:
    """All clients, and all tokens by their hashes.

    It changes by ``apply`` alone, with the rows of the log in their order, also when a server starts again.
    ``sites`` are by client, ``accounts`` by the token's SHA-256. ``forgotten`` are the clients whose data were deleted,
    or are being deleted.
    """

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self.sites: dict[int, Site] = {}
        self.forgotten: set[int] = set()
        self.accounts: dict[str, Account] = {}
        self._plain: list[list[Any]] = []  # the clients' plain values, as a checkpoint holds them; never changed
        self._changed: set[int] = set()  # the clients that have others now
        if state is not None:
            for client, (expires, next_expires, *values) in enumerate(state["clients"]):
                self._add(client, Site(*values), expires)
                self._set_next(client, self.sites[client].next_token, next_expires)
            for token, *values in state["tokens"]:
                self.accounts[token] = Account(*values)

    @property
    def issued(self) -> dict[str, Account]:
        """The accounts of all tokens but the clients'."""
        return {token: account for token, account in self.accounts.items() if account.kind != "client"}

    def state_dict(self) -> dict[str, Any]:
        """Return plain values, made anew only for clients that have changed."""
        for client in sorted(self._changed):
            self._plain[client : client + 1] = [self._plain_values(self.sites[client])]
        self._changed.clear()
        return {
            "clients": list(self._plain),
            "tokens": [
                [token, one.kind, one.client, one.uses, one.expires, one.is_next, one.revoked, one.name]
                for token, one in self.issued.items()
            ],
        }

    def _plain_values(self, site: Site) -> list[Any]:
        expires, next_expires = (token and self.accounts[token].expires for token in (site.token, site.next_token))
        values = (site.name, site.enrolled, site.token, site.next_token, site.examples, site.revoked, site.forgotten)
        return [expires or None, next_expires, *values]

    def apply(self, name: str, values: Mapping[str, Any]) -> None:
        """Make a change; its values are those of the log's row of this name."""
        if "client" in values:
            self._changed.add(values["client"])
        match name:
            case "enrol":
                self._enrol(**values)
            case "declare":
                self.sites[values["client"]].examples = values["examples"]
            case "rename":
                self.sites[values["client"]].name = values["name"]
            case "renew":
                self._set_next(values["client"], values["token"], values["expires"])
            case "replace":
                self._replace(self.sites[values["client"]])
            case "revoke_client":
                self._revoke_client(values["client"], values["at"])
            case "forget_client":
                self._forget_client(values["client"], values["at"])
            case "forgot_client":
                self.sites[values["client"]].forgotten = "done"
            case "redacted":
                pass
            case "make_token":
                token = values["token"]
                self.accounts[token] = Account(
                    values["kind"], uses=values["uses"], expires=values["expires"], name=values["name"]
                )
            case "revoke_token":
                self.accounts[values["token"]].revoked = True
            case _:
                raise ValueError(f"the registry does not know the change {name!r}")

    def _enrol(
        self,
        *,
        client: int,
        name: str,
        at: float,
        token: str,
        expires: float | None,
        examples: int | None,
        by: str | None,
    ) -> None:
        if client != len(self.sites):
            raise ValueError(f"client {client} cannot enrol after client {len(self.sites) - 1}")
        self._add(client, Site(name, at, token, examples=examples), expires)
        if by is not None and (used := self.accounts[by]).uses is not None:
            used.uses -= 1

    def _add(self, client: int, site: Site, expires: float | None) -> None:
        self.sites[client] = site
        self._changed.add(client)
        if site.forgotten is not None:
            self.forgotten.add(client)
        else:
            self.accounts[site.token] = Account("client", client, expires=expires, revoked=site.revoked is not None)

    def _set_next(self, client: int, token: str | None, expires: float | None) -> None:
        site = self.sites[client]
        if site.next_token is not None:
            self.accounts.pop(site.next_token, None)
        site.next_token = token
        if token is not None:
            is_revoked = site.revoked is not None
            self.accounts[token] = Account("client", client, expires=expires, is_next=True, revoked=is_revoked)

    def _replace(self, site: Site) -> None:
        if site.next_token is None:
            raise ValueError("the client has no next token")
        del self.accounts[site.token]
        site.token, site.next_token = site.next_token, None
        self.accounts[site.token].is_next = False

    def _revoke_client(self, client: int, at: float) -> None:
        site = self.sites[client]
        site.revoked = at
        for token in (site.token, site.next_token):
            if token:
                self.accounts[token].revoked = True

    def _forget_client(self, client: int, at: float) -> None:
        site = self.sites[client]
        for token in (site.token, site.next_token):
            self.accounts.pop(token or "", None)
        self.sites[client] = Site("", site.enrolled, "", revoked=at, forgotten=site.forgotten or "begun")
        self.forgotten.add(client)


def redacted(row: Row) -> Row | None:
    """Return a client's row without what it says of it; None if that is nothing.

    The client still enrols with it, since numbers are given in order.
    """
    values = row.values
    if row.name == "enrol":
        values |= {"name": "", "token": f"of client {values['client']}", "expires": None, "examples": None}
        return replace(row, arguments=json.dumps(values, separators=(",", ":")))
    return replace(row, name="redacted", arguments="{}") if row.name in _REDACTED else None
