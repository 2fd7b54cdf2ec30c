"""``[login]`` of a server's file."""

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from offbeat_core.errors import OffbeatError
from offbeat_core.tables.section import Section
from pydantic import AfterValidator, Field, field_validator

from offbeat.config.user_paths import UserPath
from offbeat.service.accounts.registry import Role
from offbeat.service.login.login_settings import LoginSettings

_HERE = ("127.0.0.1", "::1", "localhost")


def _check_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_good = bool(parts.hostname) and parts.port != 0 and url.isascii() and url.isprintable()
    except ValueError:
        parts, is_good = None, False
    if (
        parts is None
        or not is_good
        or not (parts.scheme == "https" or (parts.scheme, parts.hostname in _HERE) == ("http", True))
    ):
        raise ValueError("must begin with https:// and name a host; http:// is for 127.0.0.1 and localhost only")
    if parts.query or parts.fragment or parts.username is not None or parts.password is not None or '"' in url:
        raise ValueError("must be a URL without ?, #, quotes and password")
    return url


_Url = Annotated[str, Field(max_length=1024), AfterValidator(_check_url)]
_Texts = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(strict=False)]


class LoginSection(Section):
    """``[login]``: people log in to the live page through an OpenID Connect provider."""

    issuer: _Url
    """The provider's issuer, as its description names it."""
    client_id: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^[!-~]+$")]
    """The id under which the provider knows this server; its redirect URI is `URL/v1/login/callback`."""
    client_secret_file: UserPath | None = None
    """A file with the secret that the provider gave out; left out for a public client."""
    roles: dict[Role, _Texts]
    """The groups that have each role, for instance `{ admin = ["fl-admins"], viewer = ["*"] }`; `"*"` is everybody, and
    the highest role counts."""
    groups_claim: Annotated[str, Field(min_length=1)] = "groups"
    """The claim with a person's groups."""
    scopes: _Texts = ()
    """Scopes to ask for beside `openid`, if the provider needs one to send groups."""
    url: _Url | None = None
    """Where people open the live page, for instance behind a proxy; the server's own address if it is left out."""

    @field_validator("roles")
    @classmethod
    def _check_roles(cls, roles: dict[Role, tuple[str, ...]]) -> dict[Role, tuple[str, ...]]:
        if not any(roles.values()):
            raise ValueError('give at least one group a role, for instance roles = { admin = ["fl-admins"] }')
        return roles

    def settings(self) -> LoginSettings:
        """Return the settings with the secret; ``OffbeatError`` if it cannot be read."""
        return LoginSettings(
            issuer=self.issuer,
            client_id=self.client_id,
            client_secret=self._secret(),
            roles={role: frozenset(groups) for role, groups in self.roles.items()},
            groups_claim=self.groups_claim,
            scopes=self.scopes,
            url=self.url and self.url.rstrip("/"),
        )

    def _secret(self) -> str | None:
        if self.client_secret_file is None:
            return None
        try:
            secret = Path(self.client_secret_file).read_text(encoding="ascii").strip()
        except OSError as error:
            raise OffbeatError(
                f"cannot read login.client_secret_file {self.client_secret_file}: {error.strerror}"
            ) from None
        except ValueError:
            secret = ""
        if not secret or not secret.isprintable():
            raise OffbeatError(
                f"login.client_secret_file {self.client_secret_file} must hold one line of ASCII, the secret"
            )
        return secret


def check_url(login: LoginSection | None, *, has_tls: bool) -> None:
    """Raise ``ValueError`` if the address of the login is not known.

    A server without TLS must say where people open its page.
    """
    if login is not None and login.url is None and not has_tls:
        raise ValueError("login.url is missing: with tls = false, set the https:// address of the live page")
