"""ID tokens as an attacker or a broken provider would make them."""

import base64
import hmac
import json
import time
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from joserfc.jwk import ECKey, OctKey

from offbeat.service.login.id_token import read_keys
from offbeat.service.login.login_errors import ProviderError
from tests.service.login.conftest import BrowserAt, Fooled
from tests.service.login.false_provider import KEY, OTHER_KEY, FalseProvider, sign

NOW = int(time.time())
NEW_KEY = ECKey.generate_key("P-256", {"kid": "new"})
PEM = KEY.as_pem(private=False)
TokenMaker = Callable[[FalseProvider, str], str]


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def unsigned(header: object, claims: object) -> str:
    return f"{part(header)}.{part(claims)}."


def signed(claims: object, **header: object) -> str:
    """Return a token with any header, signed by the provider."""
    text = f"{part({'alg': 'RS256', 'kid': 'one', **header})}.{part(claims)}"
    signature = KEY.get_op_key("sign").sign(text.encode(), PKCS1v15(), SHA256())
    return f"{text}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def by_a_new_key(provider: FalseProvider, nonce: str) -> str:
    provider.answers["/keys"]["keys"].append(NEW_KEY.as_dict(private=False))
    return sign(provider.claims(nonce), NEW_KEY, alg="ES256", kid="new")


def hs256(claims: object, secret: bytes) -> str:
    signed = f"{part({'alg': 'HS256', 'kid': 'one'})}.{part(claims)}"
    digest = base64.urlsafe_b64encode(hmac.digest(secret, signed.encode(), "sha256"))
    return f"{signed}.{digest.rstrip(b'=').decode()}"


def other(**changes: object) -> TokenMaker:
    return lambda provider, nonce: sign(provider.claims(nonce, **changes))


WRONG: dict[str, TokenMaker] = {
    "alg none": lambda provider, nonce: unsigned({"alg": "none"}, provider.claims(nonce)),
    "alg None": lambda provider, nonce: unsigned({"alg": "None"}, provider.claims(nonce)),
    "alg none, with kid": lambda provider, nonce: unsigned({"alg": "none", "kid": "one"}, provider.claims(nonce)),
    "no alg": lambda provider, nonce: unsigned({"kid": "one"}, provider.claims(nonce)),
    "alg a list": lambda provider, nonce: unsigned({"alg": ["RS256"], "kid": "one"}, provider.claims(nonce)),
    "HS256 with the public key": lambda provider, nonce: hs256(provider.claims(nonce), PEM),
    "another's key": lambda provider, nonce: sign(provider.claims(nonce), OTHER_KEY),
    "its own key": lambda provider, nonce: sign(
        provider.claims(nonce), OTHER_KEY, jwk=OTHER_KEY.as_dict(private=False)
    ),
    "unknown key": lambda provider, nonce: sign(provider.claims(nonce), OTHER_KEY, kid="two"),
    "unknown crit": lambda provider, nonce: signed(provider.claims(nonce), crit=["later"], later=1),
    "claims not encoded": lambda provider, nonce: signed(provider.claims(nonce), crit=["b64"], b64=False),
    "changed": lambda provider, nonce: ".".join(
        [*sign(provider.claims(nonce)).split(".")[:1], part(provider.claims(nonce, sub="eve")), "AAAA"]
    ),
    "foreign nonce": other(nonce="another"),
    "no nonce": other(nonce=None),
    "nonce a list": lambda provider, nonce: sign(provider.claims(nonce, nonce=[nonce])),
    "expired": other(exp=NOW - 70),
    "no exp": other(exp=None),
    "exp a text": other(exp="tomorrow"),
    "exp true": other(exp=True),
    "exp not a number": lambda provider, nonce: sign(provider.claims(nonce, exp=float("nan"))),
    "not yet": other(nbf=NOW + 86400),
    "from the future": other(iat=NOW + 86400),
    "no iat": other(iat=None),
    "other audience": other(aud="another"),
    "no audience": other(aud=None),
    "several audiences": other(aud=["offbeat", "another"]),
    "for another party": other(azp="another"),
    "other issuer": other(iss="https://elsewhere.example"),
    "issuer with a slash": lambda provider, nonce: sign(provider.claims(nonce, iss=f"{provider.issuer}/")),
    "issuers": lambda provider, nonce: sign(provider.claims(nonce, iss=[provider.issuer])),
    "no subject": other(sub=None),
    "subject a number": other(sub=7),
    "subject of two lines": other(sub="ada\nrun paused"),
    "long subject": other(sub="a" * 256),
    "not a token": lambda *_: "a.b",
    "empty": lambda *_: "",
    "letters": lambda *_: "é.é.é",
    "claims a list": lambda *_: signed([1]),
    "deep": lambda *_: (
        f"{part({'alg': 'RS256', 'kid': 'one'})}.{base64.urlsafe_b64encode(b'[' * 60_000).decode()}.AAAA"
    ),
    "large": other(more="x" * 200_000),
}
RIGHT: dict[str, TokenMaker] = {
    "plain": other(),
    "expired within the skew": lambda provider, nonce: sign(provider.claims(nonce, exp=int(time.time()) - 50)),
    "early within the skew": lambda provider, nonce: sign(provider.claims(nonce, nbf=int(time.time()) + 50)),
    "several audiences, for this party": other(aud=["another", "offbeat"], azp="offbeat"),
    "unknown header": lambda provider, nonce: signed(provider.claims(nonce), later=1),
    "ES256 by a new key": by_a_new_key,
    "PS512": lambda provider, nonce: sign(provider.claims(nonce), alg="PS512"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_token_logs_nobody_in(
    name: str, honest: Fooled, browser_at: BrowserAt, caplog: pytest.LogCaptureFixture
) -> None:
    honest.provider.token = lambda nonce: WRONG[name](honest.provider, nonce)
    person = browser_at(honest.server.url)
    answer = honest.log_in(person)
    assert answer.status_code == 502
    assert "ask the server’s operator" in answer.text
    assert "offbeat" not in person.http.cookies
    assert honest.server.service.accounts.sessions.accounts == {}
    (problem,) = (one.fields["problem"] for one in caplog.records if one.getMessage() == "login_failed")
    assert "\n" not in problem


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_token_logs_in(name: str, honest: Fooled, browser_at: BrowserAt) -> None:
    honest.provider.token = lambda nonce: RIGHT[name](honest.provider, nonce)
    person = browser_at(honest.server.url)
    assert honest.log_in(person).status_code == 303
    assert person.ask("POST", "/v1/admin/resume").status_code == 200
    assert person.ask("POST", "/v1/logout").status_code == 204


def test_keys_that_cannot_check_signatures_are_left_out() -> None:
    good = [KEY.as_dict(private=False), ECKey.generate_key("P-256").as_dict(private=False)]
    bad = [
        OctKey.generate_key(256).as_dict(private=True),
        KEY.as_dict(private=False) | {"use": "enc"},
        KEY.as_dict(private=False) | {"n": "A" * 2000},
        KEY.as_dict(private=False) | {"n": "A" * 171},  # 1,024 bits
        KEY.as_dict(private=False) | {"e": "A" * 342},
        ECKey.generate_key("P-256").as_dict(private=False) | {"x": "AAAA"},
        {"kty": "RSA"},
        {"kty": ["RSA"]},
        {"kty": "later"},
        7,
    ]
    assert [key.key_type for key in read_keys({"keys": [*bad, *good]})] == ["RSA", "EC"]


@pytest.mark.parametrize("published", [{}, {"keys": {}}, [], {"keys": [{}] * 101}])
def test_a_set_that_is_none_or_has_too_many_keys(published: object) -> None:
    with pytest.raises(ProviderError, match="key set"):
        read_keys(published)
