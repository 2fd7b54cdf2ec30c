"""``[webhook]`` of a server's file."""

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from offbeat_core.errors import OffbeatError
from offbeat_core.tables.section import Section
from pydantic import Field, field_validator, model_validator

from offbeat.config.user_paths import UserPath
from offbeat.service.webhook.webhook_settings import EventName, WebhookSettings

_USUAL: tuple[EventName, ...] = (
    "run_ended",
    "clients_silent",
    "budget_low",
    "disk_full",
    "log_unavailable",
    "blobs_unavailable",
    "helper_problem",
)
_LEAST_SECRET = 16  # bytes


class WebhookSection(Section):
    """``[webhook]``: messages about the run to a URL of the operator's."""

    url: Annotated[str, Field(max_length=2048)]
    """Where messages go, as JSON by POST: `https://…`, or `http://…` where `internal` allows it."""
    secret_file: UserPath
    """A file of at least 16 random bytes, with which each message is signed."""
    events: Annotated[tuple[EventName, ...], Field(strict=False)] = _USUAL
    """The events of the log that are sent."""
    internal: bool = False
    """Whether the URL may lead to an address inside, such as 127.0.0.1 or 10.0.0.5."""

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        try:
            parts = urlsplit(url)
            is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            parts, is_good = None, False
        if parts is None or not is_good:
            raise ValueError("the URL must begin with https:// or http://, and name a host")
        if parts.username is not None or parts.password is not None:
            raise ValueError("the URL must not hold a password: the receiver knows messages by their signature")
        return url

    @field_validator("events")
    @classmethod
    def _check_events(cls, events: tuple[EventName, ...]) -> tuple[EventName, ...]:
        if not events:
            raise ValueError("name at least one event, or leave [webhook] out")
        return events

    @model_validator(mode="after")
    def _check_encryption(self) -> "WebhookSection":
        if not self.internal and urlsplit(self.url).scheme != "https":
            raise ValueError("url must begin with https://, unless internal = true")
        return self

    def settings(self) -> WebhookSettings:
        """Return the settings with the secret; ``OffbeatError`` if there is none."""
        try:
            secret = Path(self.secret_file).read_bytes().strip()
        except OSError as error:
            raise OffbeatError(
                f"cannot read webhook.secret_file {self.secret_file}: {error.strerror}; to make one: "
                f"openssl rand -hex 32 > {self.secret_file}"
            ) from None
        if len(secret) < _LEAST_SECRET:
            raise OffbeatError(
                f"webhook.secret_file {self.secret_file} has {len(secret)} bytes, at least {_LEAST_SECRET} are needed: "
                f"openssl rand -hex 32 > {self.secret_file}"
            )
        return WebhookSettings(self.url, secret, frozenset(self.events), self.internal)
