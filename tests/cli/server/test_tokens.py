"""Tokens of a server, which is a stub."""

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.service.server import admin

Command = Callable[..., tuple[int, str, str]]


def test_a_new_token_is_in_a_file_that_others_cannot_read(
    offbeat: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(admin, "make_token", lambda *given, **named: asked.append((given, named)) or "secret")
    output = tmp_path / "token"
    make = ("server", "tokens", "make", "server", "enrolment", "--uses", "8", "--hours", "1.5", "--name", "ward 3")
    assert offbeat(*make, "--output", str(output)) == (0, f"{output}: a new enrolment token\n", "")
    assert asked == [((Path("server"), "enrolment"), {"uses": 8, "seconds": 5400.0, "name": "ward 3", "labels": ()})]
    assert output.read_text() == "secret\n"
    assert stat.S_IMODE(output.stat().st_mode) == 0o600
    assert offbeat(*make, "--output", str(output))[2].endswith("File exists: choose another --output\n")


def test_a_refused_token_leaves_no_file(offbeat: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OffbeatError("no server")

    monkeypatch.setattr(admin, "make_token", refuse)
    for more in ((), ("--uses", "3")):
        assert (
            offbeat("server", "tokens", "make", "server", "admin", *more, "--output", str(tmp_path / "token"))[0] == 2
        )
    assert not (tmp_path / "token").exists()


def test_an_interrupted_command_leaves_no_file(
    offbeat: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(admin, "make_token", interrupt)
    assert offbeat("server", "tokens", "make", "server", "admin", "--output", str(tmp_path / "token"))[0] != 0
    assert not (tmp_path / "token").exists()


def test_only_a_valid_token_expires(offbeat: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    token = {"id": "a", "kind": "enrolment", "state": "valid", "uses": 3, "expires_seconds": 5400.0, "name": "ward 3"}
    token["labels"] = []
    others = [
        {"id": "b", "state": "revoked"},
        {"id": "c", "uses": None, "expires_seconds": None, "name": "", "labels": ["eu", "gpu"]},
        {"id": "d", "name": "\x1b[2J"},
    ]
    monkeypatch.setattr(admin, "tokens", lambda _: [token, *(token | other for other in others)])
    assert offbeat("server", "tokens", "server")[1].splitlines() == [
        "a: enrolment, valid, 3 uses left, expires in 1.5 hours, ward 3",
        "b: enrolment, revoked, 3 uses left, ward 3",
        "c: enrolment, valid, labels eu gpu",
        "d: enrolment, valid, 3 uses left, expires in 1.5 hours, \\x1b[2J",
    ]
