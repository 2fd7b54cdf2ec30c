"""Commands ``server runs`` and ``server status`` of a server of several runs."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.service.conftest import running
from tests.service.hosting.conftest import hosting

Command = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize("command", [("runs",), ("runs", "list"), ("status",)])
def test_problems_come_first_in_sentences(offbeat: Command, tmp_path: Path, command: tuple[str, ...]) -> None:
    folder = tmp_path / "server"
    with hosting(folder) as server:
        server.create("retina", algorithm="fedasync", versions=9)
        server.create("lungs", algorithm="fedasync", labels=["none"])
        assert server.enrol("ward 3").work() == "retina"
        server.fail("lungs")
        assert offbeat("server", *command, str(folder))[:2] == (
            0,
            "problem: lungs has failed (ValueError: planted), and is opened again later: look at its file and the log\n"
            "retina: at work, fedasync, version 1 of 9, 1 of 3 clients, 0 at work, 0 waiting, 1 counted\n"
            "lungs: failed\n"
            "2 runs, 1 site\n",
        )


def test_the_status_in_json_is_the_servers_answer(offbeat: Command, tmp_path: Path) -> None:
    folder = tmp_path / "server"
    with hosting(folder) as server:
        server.create("retina", algorithm="fedasync")
        code, out, _ = offbeat("server", "status", str(folder), "--json")
        assert (code, json.loads(out)) == (0, server.admin.http.get("/v1/status").json())
    code, out, _ = offbeat("server", "status", str(folder), "--json")
    assert (code, json.loads(out)) == (
        3,
        {"server": "stopped", "runs": [{"name": "retina", "algorithm": "fedasync", "version": 0}]},
    )
    assert offbeat("server", "status", str(folder))[:2] == (3, "server: stopped\nretina: fedasync, version 0\n")


def test_the_status_of_a_single_run_in_json(offbeat: Command, tmp_path: Path) -> None:
    folder = tmp_path / "server"
    with running(folder) as server:
        code, out, _ = offbeat("server", "status", "--json", str(folder))
        there, now = json.loads(out), server.admin.http.get("/v1/status").json()
        assert code == 0
        assert there | {"run_seconds": 0} == now | {"run_seconds": 0}
    code, out, _ = offbeat("server", "status", "--json", str(folder))
    assert (code, json.loads(out)["server"]) == (3, "stopped")
