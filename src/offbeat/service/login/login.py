"""Logins, from the redirect to the provider to the person's role."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import httpx

from offbeat.service.accounts.registry import Role
from offbeat.service.login.login_attempts import LoginAttempt, LoginAttempts
from offbeat.service.login.login_errors import LoginRefusedError, ProviderError
from offbeat.service.login.login_settings import LoginSettings
from offbeat.service.login.provider import Provider, error_code

CALLBACK = "/v1/login/callback"
_MOST_AT_ONCE = 16  # exchanges with the provider
_SECONDS = 15.0  # for all requests of one exchange


@dataclass(frozen=True)
class Person:
    """A person whom the provider has logged in; ``subject`` is the provider's id."""

    subject: str
    role: Role


@dataclass(frozen=True)
class CallbackQuery:
    """The provider's answer through the browser, or a stranger's in its place."""

    code: str | None = None
    state: str | None = None
    error: str | None = None
    iss: str | None = None


class Login:
    """The authorization code flow with PKCE.

    ``url`` is where people open the live page.
    """

    def __init__(self, settings: LoginSettings, url: str) -> None:
        self._settings = settings
        self._redirect_uri = url + CALLBACK
        self._provider = Provider(settings)
        self._attempts = LoginAttempts()
        self._under_way = 0

    async def begin(self) -> tuple[str, LoginAttempt]:
        """Return the provider's address for a new login.

        Raises:
            ProviderError: The provider cannot be asked.
        """
        attempt, metadata = self._attempts.begin(), await self._provider.metadata()
        parameters = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": self._redirect_uri,
            "scope": " ".join(("openid", *self._settings.scopes)),
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": attempt.challenge,
            "code_challenge_method": "S256",
        }
        return str(httpx.URL(metadata.authorization_endpoint).copy_merge_params(parameters)), attempt

    async def complete(self, cookie: str | None, query: CallbackQuery) -> Person:
        """Return the person who comes back with the cookie of a login.

        Raises:
            LoginRefusedError: The login was not begun here, was not finished, or gives no role.
            ProviderError: The provider does not answer, or wrongly.
        """
        attempt = self._attempts.resume(cookie, query.state)
        if self._under_way >= _MOST_AT_ONCE:
            raise LoginRefusedError("too many logins are under way: try again in a moment", 503)
        self._under_way += 1
        try:
            async with asyncio.timeout(_SECONDS):
                claims = await self._claims(attempt, query)
        except TimeoutError:
            raise ProviderError(f"the provider does not answer within {_SECONDS:g} s") from None
        finally:
            self._under_way -= 1
        role = self._settings.role_of(_groups(claims.get(self._settings.groups_claim)))
        if role is None:
            raise LoginRefusedError("you are logged in, but none of your groups has a role here: ask an admin", 403)
        return Person(claims["sub"], role)

    async def _claims(self, attempt: LoginAttempt, query: CallbackQuery) -> dict[str, Any]:
        metadata = await self._provider.metadata()
        # Without this check another provider could pass its codes off as this one's (RFC 9207).
        is_required = metadata.authorization_response_iss_parameter_supported
        if (query.iss is not None or is_required) and query.iss != self._settings.issuer:
            raise LoginRefusedError("the answer is not this server's provider's: log in again")
        if query.error is not None:
            raise LoginRefusedError(f"the provider did not log you in ({error_code(query.error)}): log in again")
        if not query.code:
            raise LoginRefusedError("the provider's answer has no code: log in again")
        return await self._provider.redeem(query.code, attempt, self._redirect_uri)


def _groups(claim: object) -> Collection[str]:
    """Return the groups of a claim, which is a text or a list of them."""
    if isinstance(claim, str):
        return (claim,)
    return [one for one in claim if isinstance(one, str)] if isinstance(claim, list) else ()
