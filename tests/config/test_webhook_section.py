from pathlib import Path
from typing import Any

import pytest
from offbeat_core.errors import OffbeatError
from pydantic import ValidationError

from offbeat.config.webhook_section import WebhookSection


def section(**changes: Any) -> WebhookSection:
    table = {"url": "https://hooks.example/offbeat", "secret_file": "secret"} | changes
    return WebhookSection.model_validate(table, context={"folder": Path()})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"url": "hooks.example"}, "must begin with https:// or http://, and name a host"),
        ({"url": "ftp://hooks.example"}, "must begin with https:// or http://"),
        ({"url": "https://"}, "name a host"),
        ({"url": "https://[::1"}, "name a host"),
        ({"url": "https://hooks.example:99999/"}, "name a host"),
        ({"url": "https://me:secret@hooks.example/"}, "must not hold a password"),
        ({"url": "http://hooks.example/"}, "https://, unless internal = true"),
        ({"events": []}, "at least one event"),
        ({"events": ["run_end"]}, "run_ended"),
        ({"secret": "x"}, "secret_file"),
    ],
)
def test_a_mistake_is_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message) as caught:
        section(**changes)
    assert caught.value.error_count() == 1 or "secret" in changes


def test_an_address_inside_needs_no_encryption() -> None:
    assert section(url="http://10.0.0.5:8080/", internal=True).internal


@pytest.mark.parametrize(
    ("content", "message"), [(None, "No such file.*openssl rand -hex 32"), (b"short\n", "has 5 bytes, at least 16")]
)
def test_a_secret_that_cannot_be_used_is_one_line(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(OffbeatError, match=message) as caught:
        section(secret_file=str(path)).settings()
    assert "\n" not in str(caught.value)


def test_the_secret_is_read_and_not_shown(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"0123456789abcdef\n")
    settings = section(secret_file=str(tmp_path / "secret")).settings()
    assert settings.secret == b"0123456789abcdef"
    assert "0123" not in repr(settings)
