"""Logins that have begun, each bound to the browser that began it."""

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from offbeat.service.login.login_errors import LoginRefusedError

SECONDS = 600
"""How long a login may take."""

_AGAIN = f"this login was not begun in this browser within the last {SECONDS // 60} minutes: log in again"


@dataclass(frozen=True)
class LoginAttempt:
    """A login's random values.

    The browser gets the ``cookie``, the provider all others, PKCE's ``verifier`` only with the code.
    """

    cookie: str
    state: str
    nonce: str
    verifier: str

    @property
    def challenge(self) -> str:
        """PKCE's challenge by S256."""
        return _text(hashlib.sha256(self.verifier.encode("ascii")).digest())


class LoginAttempts:
    """Makes attempts, and recognises them.

    Nothing is kept of an attempt, so that strangers cannot fill the memory: all its values are made of the browser's
    random cookie and a key that only this process has. A cookie without its ``state``, or a state from another
    browser, fits nothing.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._key = secrets.token_bytes(32)
        self._clock = clock

    def begin(self) -> LoginAttempt:
        """Return a new attempt."""
        return self._attempt(f"{int(self._clock()) + SECONDS}.{secrets.token_urlsafe(32)}")

    def resume(self, cookie: str | None, state: str | None) -> LoginAttempt:
        """Return the attempt of a cookie and the state that came back with it.

        Raises:
            LoginRefusedError: They do not belong together, or the attempt is too old.
        """
        attempt = self._attempt(cookie or "")
        if not hmac.compare_digest(attempt.state.encode("ascii"), (state or "").encode("utf-8", "replace")):
            raise LoginRefusedError(_AGAIN)
        # The state fits, so the cookie is one of begin's.
        if int(attempt.cookie.partition(".")[0]) <= self._clock():
            raise LoginRefusedError(_AGAIN)
        return attempt

    def _attempt(self, cookie: str) -> LoginAttempt:
        state, nonce, verifier = (self._derived(name, cookie) for name in ("state", "nonce", "verifier"))
        return LoginAttempt(cookie, state, nonce, verifier)

    def _derived(self, name: str, cookie: str) -> str:
        return _text(hmac.digest(self._key, f"{name}:{cookie}".encode("utf-8", "replace"), "sha256"))


def _text(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")
