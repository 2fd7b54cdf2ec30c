import pytest
from obstore.exceptions import BaseError, GenericError, PermissionDeniedError, UnauthenticatedError

from offbeat.service.blobs.object_store import is_final, is_http_allowed, reason


@pytest.mark.parametrize(
    ("error", "words", "final"),
    [
        (GenericError("… PUT http://169.254.169.254/latest/api/token … Connect …"), "no credentials are set", True),
        (FileNotFoundError("… 404 … <Code>NoSuchBucket</Code> …"), "there is no such bucket", True),
        (GenericError("… Kind: Builder, source: BadScheme …"), "plain HTTP is not allowed", True),
        (
            PermissionDeniedError("… status code: 403 Forbidden: <Code>SignatureDoesNotMatch</Code> …"),
            "the store answers 403 Forbidden (SignatureDoesNotMatch)",
            True,
        ),
        (UnauthenticatedError("… status code: 401 Unauthorized: "), "the store answers 401 Unauthorized", True),
        (
            GenericError("… status code: 507 Insufficient Storage: "),
            "the store answers 507 Insufficient Storage",
            False,
        ),
        (
            GenericError("… status code: 400 Bad Request: <Code>EntityTooLarge</Code>"),
            "the store answers 400 Bad Request (EntityTooLarge)",
            True,
        ),
        (GenericError("… status code: 429 Too Many Requests: "), "the store answers 429 Too Many Requests", False),
        (FileNotFoundError("… status code: 404 Not Found: "), "the store answers 404 Not Found", False),
        (TimeoutError(), "no answer in time", False),
        (GenericError("first\x1b[31m line\nsecond line"), "first[31m line", False),
        (GenericError("x" * 1000), "x" * 200, False),
    ],
)
def test_the_reason_of_an_error_is_one_short_line(error: Exception, words: str, final: bool) -> None:
    assert isinstance(error, BaseError | OSError)
    assert (reason(error), is_final(error)) == (words, final)


@pytest.mark.parametrize(("value", "allowed"), [("true", True), ("1", True), ("false", False), ("", False)])
def test_plain_http_is_allowed_by_the_environment(monkeypatch: pytest.MonkeyPatch, value: str, allowed: bool) -> None:
    monkeypatch.setenv("AWS_ALLOW_HTTP", value)
    assert is_http_allowed("s3") is allowed
