"""Commands of the service, whose server is a stub."""

import re
import shlex
import stat
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
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
    make = ("make-token", "server", "enrolment", "--uses", "8", "--hours", "1.5", "--name", "ward 3")
    assert offbeat(*make, "--output", str(output)) == (0, f"{output}: a new enrolment token\n", "")
    assert asked == [((Path("server"), "enrolment"), {"uses": 8, "seconds": 5400.0, "name": "ward 3"})]
    assert output.read_text() == "secret\n"
    assert stat.S_IMODE(output.stat().st_mode) == 0o600
    assert offbeat(*make, "--output", str(output))[2].endswith("File exists: choose another --output\n")


def test_a_refused_token_leaves_no_file(offbeat: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OffbeatError("no server")

    monkeypatch.setattr(admin, "make_token", refuse)
    for more in ((), ("--uses", "3")):
        assert offbeat("make-token", "server", "admin", *more, "--output", str(tmp_path / "token"))[0] == 2
    assert not (tmp_path / "token").exists()


def test_an_interrupted_command_leaves_no_file(
    offbeat: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(admin, "make_token", interrupt)
    assert offbeat("make-token", "server", "admin", "--output", str(tmp_path / "token"))[0] != 0
    assert not (tmp_path / "token").exists()


def test_only_a_valid_token_expires(offbeat: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    token = {"id": "a", "kind": "enrolment", "state": "valid", "uses": 3, "expires_seconds": 5400.0, "name": "ward 3"}
    others = [
        {"id": "b", "state": "revoked"},
        {"id": "c", "uses": None, "expires_seconds": None, "name": ""},
        {"id": "d", "name": "\x1b[2J"},
    ]
    monkeypatch.setattr(admin, "tokens", lambda _: [token, *(token | other for other in others)])
    assert offbeat("tokens", "server")[1].splitlines() == [
        "a: enrolment, valid, 3 uses left, expires in 1.5 hours, ward 3",
        "b: enrolment, revoked, 3 uses left, ward 3",
        "c: enrolment, valid",
        "d: enrolment, valid, 3 uses left, expires in 1.5 hours, \\x1b[2J",
    ]


def test_the_status_shows_the_evaluation_by_clients(offbeat: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    accuracy = {"clients": 18, "weighted": 0.91234, "mean": 0.9, "p10": 0.5, "p50": 0.95, "p90": 1.0, "worst": 0.25}
    summary = {"version": 12, "asked": 20, "answered": 18, "examples": 240, "metrics": {"accuracy": accuracy}}
    monkeypatch.setattr(admin, "status", lambda _: {"version": 13, "evaluated_by_clients": summary})
    assert offbeat("status", "server")[1].splitlines() == [
        "version: 13",
        "evaluated by clients: version 12, 18 of 20 clients, 240 examples",
        "accuracy on clients: by examples 0.9123, mean 0.9, 10th percentile 0.5, 90th percentile 1, worst tenth 0.25",
    ]
    monkeypatch.setattr(admin, "status", lambda _: {"version": 13, "evaluated_by_clients": None})
    assert offbeat("status", "server")[1] == "version: 13\n"


@pytest.fixture
def served(offbeat: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Return a function that starts a server with a folder and returns what it prints."""

    def run_server(_: Any, ready: Callable[[Any], None]) -> None:
        service = SimpleNamespace(status=lambda: SimpleNamespace(algorithm="fedbuff", version=3))
        ready(SimpleNamespace(url="http://127.0.0.1:1", public_url="http://host:1", service=service))

    monkeypatch.setattr("offbeat.worlds.serve.run_server", run_server)
    file = tmp_path / "server.toml"
    file.write_text(Path("examples/service/server.toml").read_text("utf-8"), encoding="utf-8")
    return lambda folder: offbeat(
        "serve", str(file), "--set", f"service.folder='{folder}'", "--set", "service.tls=false"
    )[1]


def test_serve_prints_where_the_live_page_is_and_no_token(served: Callable[[str], str]) -> None:
    output = served("server")
    (line,) = [line for line in output.splitlines() if line.startswith("Live page: ")]
    assert line.startswith("Live page: http://host:1/ (its token is in ")
    assert line.endswith("server/admin-token)")
    assert not re.search(r"ob[aec]_", output)


def test_serve_prints_commands_that_a_shell_can_read(served: Callable[[str], str], tmp_path: Path) -> None:
    output = served("ward 3")
    (join,) = re.findall("^Enrol clients: (.*)$", output, re.MULTILINE)
    (status,) = re.findall("^Status: (.*);", output, re.MULTILINE)
    token = str(tmp_path / "ward 3" / "enrolment-token")
    assert shlex.split(join) == [
        "offbeat", "join", "http://host:1", "--token-file", token, "--client", "FILE.py:make_client"
    ]  # fmt: skip
    assert shlex.split(status) == ["offbeat", "status", str(tmp_path / "ward 3")]
