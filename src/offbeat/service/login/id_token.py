"""The check of ID tokens (OpenID Connect Core 1.0, 3.1.3.7)."""

import hmac
from collections.abc import Sequence
from typing import Any

from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import JWKRegistry, Key, KeySet
from joserfc.jws import JWSRegistry

from offbeat.service.login.login_errors import ProviderError

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519")
"""Signatures by a private key, which only the provider has."""

SKEW_SECONDS = 60
"""How far the clocks of provider and server may differ."""

_MOST_KEYS = 100
_KEY_TYPES = ("RSA", "EC", "OKP")
_RSA_TEXT = range(342, 1367)  # characters of a modulus from 2,048 to 8,192 bits
_LONGEST_EXPONENT = 8  # characters; a long one makes a check slow
_LONGEST_SUBJECT = 255


class UnknownKeyError(ProviderError):
    """The token names a key that is not in the set.

    The provider may have changed its keys.
    """


def read_keys(published: Any) -> KeySet:
    """Return the keys of a published set (RFC 7517) that can check signatures.

    Raises:
        ProviderError: It is not a set of keys, or has more than 100.
    """
    listed = published.get("keys") if isinstance(published, dict) else None
    if not isinstance(listed, list):
        raise ProviderError("the provider's key set has no list of keys")
    if len(listed) > _MOST_KEYS:
        raise ProviderError(f"the provider's key set has {len(listed)} keys, more than {_MOST_KEYS}")
    return KeySet([key for one in listed if (key := _read_key(one)) is not None])


def _read_key(one: Any) -> Key | None:
    if not isinstance(one, dict) or one.get("kty") not in _KEY_TYPES or one.get("use", "sig") != "sig":
        return None
    modulus, exponent = str(one.get("n", "")), str(one.get("e", ""))
    if one["kty"] == "RSA" and (len(modulus) not in _RSA_TEXT or len(exponent) > _LONGEST_EXPONENT):
        return None
    try:
        key = JWKRegistry.import_key(one)
        key.ensure_kid()
    except Exception:  # whatever is wrong with one key, the others may be good
        return None
    return key


def check_id_token(token: str, keys: KeySet, *, issuer: str, client_id: str, nonce: str, now: float) -> dict[str, Any]:
    """Return the claims of an ID token of this provider, client and login.

    Checks signature, ``iss``, ``aud``, ``azp``, ``exp``, ``iat``, ``nbf``, ``nonce`` and the form of ``sub``.

    Raises:
        UnknownKeyError: It is signed by a key that is not among ``keys``.
        ProviderError: It is wrong.
    """
    registry = JWSRegistry(algorithms=ALGORITHMS, strict_check_header=False)
    wanted = jwt.JWTClaimsRegistry(
        now=int(now),
        leeway=SKEW_SECONDS,
        iss={"essential": True, "value": issuer},
        aud={"essential": True, "value": client_id},
        sub={"essential": True},
        exp={"essential": True},
        iat={"essential": True},
    )
    try:
        claims = jwt.decode(token, keys, registry=registry).claims
        wanted.validate(claims)
    except InvalidKeyIdError:
        raise UnknownKeyError("the ID token names a key that the provider does not publish") from None
    except (JoseError, ValueError, TypeError, RecursionError) as error:
        raise ProviderError(f"the ID token is wrong: {_reason(error)}") from None
    _check_party(claims, client_id)
    if not hmac.compare_digest(str(claims.get("nonce")).encode("utf-8", "replace"), nonce.encode("ascii")):
        raise ProviderError("the ID token is wrong: its nonce is not this login's")
    subject = claims["sub"]
    if not subject.isprintable() or len(subject) > _LONGEST_SUBJECT:
        raise ProviderError(f"the ID token is wrong: its sub is not a line of at most {_LONGEST_SUBJECT} characters")
    return claims


def _check_party(claims: dict[str, Any], client_id: str) -> None:
    audience: str | Sequence[str] = claims["aud"]
    is_for_others = not isinstance(audience, str) and len(audience) > 1
    if claims.get("azp", None if is_for_others else client_id) != client_id:
        raise ProviderError("the ID token is wrong: it was made for another client (azp)")


def _reason(error: Exception) -> str:
    return str(error).replace("\n", " ")[:200] or type(error).__name__
