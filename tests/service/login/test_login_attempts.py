import base64
import hashlib

import pytest

from offbeat.service.login.login_attempts import LoginAttempts
from offbeat.service.login.login_errors import LoginRefusedError


def test_an_attempt_is_known_by_its_cookie_and_state_for_ten_minutes():
    now = [1000.0]
    attempts = LoginAttempts(lambda: now[0])
    attempt = attempts.begin()
    assert attempts.resume(attempt.cookie, attempt.state) == attempt
    now[0] += 599
    assert attempts.resume(attempt.cookie, attempt.state) == attempt
    now[0] += 1
    with pytest.raises(LoginRefusedError, match="within the last 10 minutes: log in again"):
        attempts.resume(attempt.cookie, attempt.state)


def test_all_values_differ_and_none_tells_another():
    one, two = LoginAttempts().begin(), LoginAttempts().begin()
    values = {
        getattr(each, name) for each in (one, two) for name in ("cookie", "state", "nonce", "verifier", "challenge")
    }
    assert len(values) == 10
    # PKCE (RFC 7636): 43 characters, and the challenge is the SHA-256 of the verifier's text.
    assert len(one.verifier) == 43
    assert base64.urlsafe_b64decode(one.challenge + "=") == hashlib.sha256(one.verifier.encode()).digest()


@pytest.mark.parametrize(
    ("cookie", "state"),
    [(None, None), ("", ""), (None, ""), ("x", "x"), ("é", "é"), ("9" * 5000, None), ("\ud800", "\ud800")],
)
def test_what_was_never_begun_is_refused(cookie, state):
    attempts = LoginAttempts()
    begun = attempts.begin()
    for wrong in ((cookie, state), (begun.cookie, state), (cookie, begun.state)):
        with pytest.raises(LoginRefusedError):
            attempts.resume(*wrong)


def test_another_process_does_not_know_it():
    attempt = LoginAttempts().begin()
    with pytest.raises(LoginRefusedError):
        LoginAttempts().resume(attempt.cookie, attempt.state)
