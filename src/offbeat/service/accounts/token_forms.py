"""The forms of tokens."""

from offbeat_core.tokens import looks_like, token_hash

from offbeat.service.accounts.registry import Kind
from offbeat.service.refusal import Refusal

PREFIXES: dict[Kind, str] = {
    "enrolment": "obe_",
    "client": "obc_",
    "session": "obs_",
    "viewer": "obv_",
    "operator": "obo_",
    "admin": "oba_",
}
"""The beginning of each kind of token."""

CHALLENGE = {"WWW-Authenticate": "Bearer"}
"""The header of answers to requests without a valid token."""

_IF_UNKNOWN: dict[Kind, str] = {
    "enrolment": "ask for a new enrolment token",
    "client": "enrol again",
    "session": "log in again",
    "viewer": "ask an admin for another one",
    "operator": "ask an admin for another one",
    "admin": "take the one in the file admin-token of the server's folder",
}


def hash_of(token: str | None, kind: Kind) -> str:
    """Return the SHA-256 of a token, which should be of this kind.

    Raises:
        Refusal: It cannot be a token.
    """
    if not token:
        raise Refusal("no-token", f"send Authorization: Bearer {PREFIXES[kind]}…", CHALLENGE)
    if not any(looks_like(token, prefix) for prefix in PREFIXES.values()):
        raise unknown_token(token, kind)
    return token_hash(token)


def unknown_token(token: str, kind: Kind) -> Refusal:
    """Return the refusal of a token that this server does not know."""
    alike: list[Kind] = [other for other, prefix in PREFIXES.items() if token.startswith(prefix)]
    advice = _IF_UNKNOWN[alike[0] if alike else kind]
    return Refusal("unknown-token", f"this server does not know the token: {advice}", CHALLENGE)
