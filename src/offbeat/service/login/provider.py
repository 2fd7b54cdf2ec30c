"""An OpenID Connect provider: its endpoints, its keys, the exchange of codes."""

import base64
import re
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote_plus

import httpx
from joserfc.jwk import KeySet
from offbeat_core.http.service_errors import one_line
from pydantic import BaseModel, ConfigDict, ValidationError

from offbeat.service.login.bounded_fetch import BoundedFetch, Kept
from offbeat.service.login.id_token import UnknownKeyError, check_id_token, read_keys
from offbeat.service.login.login_attempts import LoginAttempt
from offbeat.service.login.login_errors import LoginRefusedError, ProviderError
from offbeat.service.login.login_settings import LoginSettings

_KEPT_SECONDS = 3600.0  # endpoints and keys
_CODE = re.compile(r"[a-z_]{1,40}")  # an error's


class Metadata(BaseModel):
    """The needed part of a provider's description (OpenID Connect Discovery 1.0)."""

    model_config = ConfigDict(strict=True)

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str | None = None
    token_endpoint_auth_methods_supported: list[str] = ["client_secret_basic"]
    authorization_response_iss_parameter_supported: bool = False


class Provider:
    """Asks one provider. ``clock`` returns Unix seconds."""

    def __init__(self, settings: LoginSettings, clock: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._clock = clock
        self._fetch = BoundedFetch()
        self._metadata = Kept(self._load_metadata, _KEPT_SECONDS)
        self._keys = Kept(self._load_keys, _KEPT_SECONDS)

    async def metadata(self) -> Metadata:
        """Return the provider's endpoints, at most an hour old."""
        return await self._metadata.get()

    async def redeem(self, code: str, attempt: LoginAttempt, redirect_uri: str) -> dict[str, Any]:
        """Return the claims about the person for whom the provider has sent a code.

        The groups come from the provider's endpoint for claims if the ID token lacks them.

        Raises:
            LoginRefusedError: The provider does not accept the code.
            ProviderError: It does not answer, or wrongly.
        """
        metadata = await self.metadata()
        answer = await self._exchange(metadata, code, attempt.verifier, redirect_uri)
        claims = await self._checked(answer.get("id_token"), attempt.nonce)
        access = answer.get("access_token")
        if self._settings.groups_claim in claims or metadata.userinfo_endpoint is None or not isinstance(access, str):
            return claims
        more = await self._user_info(metadata.userinfo_endpoint, access)
        if more.get("sub") != claims["sub"]:
            raise ProviderError(f"{metadata.userinfo_endpoint} answers about another person")
        return {**more, **claims}

    async def _exchange(self, metadata: Metadata, code: str, verifier: str, redirect_uri: str) -> dict[str, Any]:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
            "client_id": self._settings.client_id,
        }
        headers: dict[str, str] = {}
        secret = self._settings.client_secret
        if secret is not None and "client_secret_basic" in metadata.token_endpoint_auth_methods_supported:
            pair = f"{quote_plus(self._settings.client_id)}:{quote_plus(secret)}"  # as RFC 6749 2.3.1 says
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode('ascii')).decode('ascii')}"
        elif secret is not None:
            form["client_secret"] = secret
        status, answer = await self._fetch(metadata.token_endpoint, form=form, headers=headers)
        if status == 200:
            return answer
        error = error_code(answer.get("error"))
        if error == "invalid_grant":
            raise LoginRefusedError("the provider does not accept this login, or not a second time: log in again")
        raise ProviderError(f"{metadata.token_endpoint} answers {status} {error}")

    async def _checked(self, token: Any, nonce: str) -> dict[str, Any]:
        if not isinstance(token, str):
            raise ProviderError("the provider sends no ID token")
        keys = await self._keys.get()
        try:
            return self._claims(token, keys, nonce)
        except UnknownKeyError:  # the provider may have changed its keys
            return self._claims(token, await self._keys.get(other_than=keys), nonce)

    def _claims(self, token: str, keys: KeySet, nonce: str) -> dict[str, Any]:
        own = self._settings
        return check_id_token(token, keys, issuer=own.issuer, client_id=own.client_id, nonce=nonce, now=self._clock())

    async def _user_info(self, url: str, access: str) -> dict[str, Any]:
        if not access.isascii() or not access.isprintable():
            raise ProviderError("the provider's access token is not a token")
        status, found = await self._fetch(url, headers={"Authorization": f"Bearer {access}"})
        if status != 200:
            raise ProviderError(f"{url} answers {status}")
        return found

    async def _load_metadata(self) -> Metadata:
        url = f"{self._settings.issuer.rstrip('/')}/.well-known/openid-configuration"
        status, found = await self._fetch(url)
        if status != 200:
            raise ProviderError(f"{url} answers {status}: check login.issuer")
        try:
            metadata = Metadata.model_validate(found)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            raise ProviderError(f"{url}: {'.'.join(map(str, first['loc'][:2]))}: {first['msg']}") from None
        if metadata.issuer != self._settings.issuer:
            raise ProviderError(f"{url} is of the issuer {one_line(metadata.issuer)!r}: check login.issuer")
        self._check_encryption(url, metadata)
        return metadata

    def _check_encryption(self, url: str, metadata: Metadata) -> None:
        """Refuse endpoints without TLS, unless the issuer, on this machine, has none."""
        allowed = ("https", httpx.URL(self._settings.issuer).scheme)
        for endpoint in (
            metadata.authorization_endpoint,
            metadata.token_endpoint,
            metadata.jwks_uri,
            metadata.userinfo_endpoint,
        ):
            if endpoint is not None and _scheme(endpoint) not in allowed:
                raise ProviderError(f"{url} names an endpoint that is not an https URL: {one_line(endpoint)}")

    async def _load_keys(self) -> KeySet:
        url = (await self.metadata()).jwks_uri
        status, found = await self._fetch(url)
        if status != 200:
            raise ProviderError(f"{url} answers {status}")
        return read_keys(found)


def _scheme(url: str) -> str:
    try:
        return httpx.URL(url).scheme
    except httpx.InvalidURL:
        return ""


def error_code(error: object) -> str:
    """Return an OAuth error code from the network, or a word in its place."""
    return error if isinstance(error, str) and _CODE.fullmatch(error) else "error"
