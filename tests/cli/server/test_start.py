"""The command ``server start``, whose server is a stub."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def served(offbeat: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Return a function that starts a server with a folder and returns what it prints."""

    def run_server(_: Any, ready: Callable[[Any], None], fronts: int) -> None:
        assert fronts == 0
        service = SimpleNamespace(status=lambda: SimpleNamespace(algorithm="fedbuff", version=3))
        ready(SimpleNamespace(url="http://127.0.0.1:1", public_url="http://host:1", service=service))

    monkeypatch.setattr("offbeat.worlds.serve.run_server", run_server)
    file = tmp_path / "server.toml"
    file.write_text(Path("src/offbeat/templates/service/server.toml").read_text("utf-8"), encoding="utf-8")
    return lambda folder: offbeat(
        "server", "start", str(file), "--set", f"service.folder='{folder}'", "--set", "service.tls=false"
    )[1]


def test_start_prints_where_the_live_page_is_and_no_token(served: Callable[[str], str]) -> None:
    output = served("server")
    (line,) = [line for line in output.splitlines() if line.startswith("Live page: ")]
    assert line.startswith("Live page: http://host:1/ (its token is in ")
    assert line.endswith("server/admin-token)")
    assert not re.search(r"ob[aec]_", output)


def test_start_prints_commands_that_a_shell_can_read(served: Callable[[str], str], tmp_path: Path) -> None:
    output = served("ward 3")
    (join,) = re.findall("^Enrol clients: (.*)$", output, re.MULTILINE)
    (status,) = re.findall("^Status: (.*);", output, re.MULTILINE)
    token = str(tmp_path / "ward 3" / "enrolment-token")
    assert shlex.split(join) == [
        "offbeat", "join", "http://host:1", "--token-file", token, "--client", "FILE.py:make_client"
    ]  # fmt: skip
    assert shlex.split(status) == ["offbeat", "server", "status", str(tmp_path / "ward 3")]
