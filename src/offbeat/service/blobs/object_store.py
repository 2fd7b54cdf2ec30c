"""Connections to an object store, and its errors in a few words."""

import os
import re
from datetime import timedelta
from typing import Any

from obstore.store import ObjectStore, from_url

_ALLOW_HTTP = {"s3": "AWS_ALLOW_HTTP", "gs": "GOOGLE_ALLOW_HTTP", "az": "AZURE_ALLOW_HTTP"}
_CONNECT_SECONDS = 5
_STATUS = re.compile(r"status code: (\d{3} [A-Za-z ]+)")
_REFUSAL = re.compile(r"status code: 4(?!04|08|09|12|29)")  # not: missing, timeout, conflict, condition, too many
_CODE = re.compile(r"<Code>([A-Za-z0-9]{1,64})</Code>")
_FINAL_SIGNS = {  # what obstore's long messages contain, in the order in which they are looked for
    "NoSuchBucket": "there is no such bucket",
    "169.254.169.254": "no credentials are set",
    "metadata.google.internal": "no credentials are set",
    "BadScheme": "plain HTTP is not allowed",
}
_PASSING_SIGNS = {
    "ConnectionRefused": "connection refused",
    "TimedOut": "no answer in time",
    "dns error": "no such host",
    "IncompleteMessage": "the connection was closed before the answer",
    "ConnectionReset": "the connection was reset",
}


def connect(url: str, seconds: float, retries: int) -> ObjectStore:
    """Return the store at a URL, with what else it needs from the environment.

    Args:
        url: ``s3://BUCKET/PREFIX``, ``gs://`` or ``az://``.
        seconds: How long a request may take; no retry begins after twice that.
        retries: How often a request is repeated, unless it could take effect twice.
    """
    scheme = url.partition(":")[0]
    options: dict[str, Any] = {}
    if scheme == "s3":
        options["disable_bulk_delete"] = True  # not every store that speaks S3 has it
    second = timedelta(seconds=1)
    return from_url(
        url,
        client_options={
            "allow_http": is_http_allowed(scheme),
            "connect_timeout": min(_CONNECT_SECONDS, seconds) * second,
            "timeout": seconds * second,
        },
        retry_config={
            "max_retries": retries,
            "retry_timeout": 2 * seconds * second,
            "backoff": {"init_backoff": 0.1 * second, "max_backoff": second},
        },
        **options,
    )


def is_http_allowed(scheme: str) -> bool:
    """Return whether the environment allows requests without TLS."""
    return os.environ.get(_ALLOW_HTTP[scheme], "").lower() in ("1", "true")


def reason(error: Exception) -> str:
    """Return in a few words why a request failed."""
    text = str(error)
    if isinstance(error, TimeoutError):
        return "no answer in time"
    for sign, meaning in (_FINAL_SIGNS | _PASSING_SIGNS).items():
        if sign in text:
            return meaning
    if status := _STATUS.search(text):
        code = _CODE.search(text)
        return f"the store answers {status[1].strip()}" + (f" ({code[1]})" if code else "")
    first = text.strip().partition("\n")[0]
    return "".join(letter for letter in first if letter.isprintable())[:200]


def is_final(error: Exception) -> bool:
    """Return whether the store has refused a request, and would again."""
    text = str(error)
    return _REFUSAL.search(text) is not None or any(sign in text for sign in _FINAL_SIGNS)
