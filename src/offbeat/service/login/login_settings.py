"""The provider of logins, and the roles of its groups."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from offbeat.service.accounts.registry import Role

EVERYBODY = "*"
"""Stands for all groups: everybody who can log in has the role."""

SECURE_COOKIE = "__Host-offbeat"
"""The cookie of a session. Browsers take this prefix over TLS alone, and from no other host."""

_BARE_COOKIE = "offbeat"  # without TLS, for trials on one machine
_HIGHEST_FIRST: tuple[Role, ...] = ("admin", "operator", "viewer")


@dataclass(frozen=True)
class LoginSettings:
    """An OpenID Connect provider, and who gets which role.

    ``roles`` has the groups of each role. ``scopes`` are asked for beside ``openid``. ``url`` is where people open the
    live page; None for the server's own address, which then has TLS.
    """

    issuer: str
    client_id: str
    client_secret: str | None = field(default=None, repr=False)
    roles: Mapping[Role, Collection[str]] = field(default_factory=dict[Role, Collection[str]])
    groups_claim: str = "groups"
    scopes: tuple[str, ...] = ()
    url: str | None = None

    @property
    def cookie(self) -> str:
        """The name of a session's cookie."""
        return _BARE_COOKIE if self.url is not None and self.url.startswith("http://") else SECURE_COOKIE

    def role_of(self, groups: Collection[str]) -> Role | None:
        """Return the highest role of a person in these groups, None if there is none."""
        held = {*groups, EVERYBODY}
        return next((role for role in _HIGHEST_FIRST if not held.isdisjoint(self.roles.get(role, ()))), None)
