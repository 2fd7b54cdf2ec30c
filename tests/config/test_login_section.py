from pathlib import Path
from typing import Any

import pytest
from offbeat_core.errors import OffbeatError
from pydantic import ValidationError

from offbeat.config.login_section import LoginSection

TABLE = {"issuer": "https://id.example", "client_id": "offbeat", "roles": {"viewer": ["*"]}}


def section(**changes: Any) -> LoginSection:
    return LoginSection.model_validate(TABLE | changes, context={"folder": Path()})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"issuer": "id.example"}, "must begin with https://"),
        ({"issuer": "http://id.example"}, "http:// is for 127.0.0.1 and localhost only"),
        ({"issuer": "http://127.0.0.1.example"}, "http:// is for 127.0.0.1 and localhost only"),
        ({"issuer": "https://"}, "name a host"),
        ({"issuer": "https://[::1"}, "name a host"),
        ({"issuer": "https://id.example/?a"}, "without \\?"),
        ({"issuer": "https://me:secret@id.example"}, "password"),
        ({"url": "ftp://fl.example"}, "must begin with https://"),
        ({"url": "https://fl.example/\n"}, "must begin with https://"),
        ({"url": 'https://fl.example/">'}, "quotes"),
        ({"client_id": ""}, "client_id"),
        ({"client_id": "é"}, "client_id"),
        ({"roles": {}}, "give at least one group a role"),
        ({"roles": {"admin": []}}, "give at least one group a role"),
        ({"roles": {"root": ["a"]}}, "roles"),
        ({"roles": {"admin": "fl-admins"}}, "roles.admin"),
        ({"groups_claim": ""}, "groups_claim"),
        ({"client_secret": "x"}, "client_secret_file"),
    ],
)
def test_a_mistake_is_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message) as caught:
        section(**changes)
    assert caught.value.error_count() == 1


@pytest.mark.parametrize(("content", "message"), [(None, "No such file"), ("\n", "one line"), ("a\nb", "one line")])
def test_a_secret_that_cannot_be_used_is_one_line(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_text(content)
    with pytest.raises(OffbeatError, match=message) as caught:
        section(client_secret_file=str(path)).settings()
    assert "\n" not in str(caught.value)


def test_the_secret_is_read_and_not_shown(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"s e cret\n")
    settings = section(client_secret_file=str(tmp_path / "secret")).settings()
    assert settings.client_secret == "s e cret"
    assert "cret" not in repr(settings).replace("client_secret", "")


@pytest.mark.parametrize(
    ("groups", "role"),
    [
        (["a"], "admin"),
        (["b", "a"], "admin"),
        (["o"], "operator"),
        (["x"], "viewer"),
        ([], "viewer"),
        (["A"], "viewer"),
    ],
)
def test_the_highest_role_counts(groups: list[str], role: str) -> None:
    settings = section(roles={"viewer": ["*"], "admin": ["a", "b"], "operator": ["o", "a"]}).settings()
    assert settings.role_of(groups) == role


def test_without_everybody_strangers_have_no_role() -> None:
    assert section(roles={"viewer": ["staff"]}).settings().role_of(["others"]) is None


@pytest.mark.parametrize(
    ("url", "name"),
    [(None, "__Host-offbeat"), ("https://fl.example/", "__Host-offbeat"), ("http://localhost:8080", "offbeat")],
)
def test_the_cookie_is_bound_to_tls(url: str | None, name: str) -> None:
    settings = section(url=url).settings()
    assert settings.cookie == name
    assert settings.url in (None, "https://fl.example", "http://localhost:8080")
