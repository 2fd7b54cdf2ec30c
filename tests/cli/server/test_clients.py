"""Commands about the clients of a server, on a real one."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from offbeat.service.server import admin
from tests.service.conftest import running
from tests.service.http_client import ONES

Command = Callable[..., tuple[int, str, str]]

KNOWN = {
    "client": 3, "name": "ward 3", "enrolled": 1.7e9, "last_seen": 1.7e9 + 60, "visits": 1234, "counted": 1200,
    "refused": 30, "lost": 3, "mean_staleness": 1.25, "revoked": None, "working": True,
}  # fmt: skip


def test_the_table_shows_all_that_is_known_and_no_control_characters(
    offbeat: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = KNOWN | {"client": 12, "name": "a\x1b[31m\u202eb\nc", "last_seen": None, "revoked": 1.7e9 + 120}
    unknown |= {"mean_staleness": None, "counted": 0}
    monkeypatch.setattr(admin, "clients", lambda *_: admin.Clients(listens=False, clients=[KNOWN, unknown]))
    code, out, error = offbeat("server", "clients", "server")
    assert (code, error) == (0, "The server is stopped: these are the clients in its folder.\n")
    assert out.splitlines() == [
        "client    enrolled (UTC)   last seen (UTC)  visits  counted  refused  lost  staleness           revoked  name",
        "     3  2023-11-14 22:13  2023-11-14 22:14   1,234    1,200       30     3       1.25                 -  "
        "ward 3",
        "    12  2023-11-14 22:13                 -   1,234        0       30     3          -  2023-11-14 22:15  "
        "a\\x1b[31m\\u202eb\\nc",
    ]
    for words in (("list", "server", "--json"), ("--json", "server")):
        assert json.loads(offbeat("server", "clients", *words)[1]) == {"listens": False, "clients": [KNOWN, unknown]}


def test_clients_are_renamed_and_revoked_by_name_or_number(offbeat: Command, tmp_path: Path) -> None:
    folder = tmp_path / "server"
    with running(folder) as server:
        for name in ("", "ward 3", "ward 3", "0", "client-9"):
            server.enrol(name=name)
        renamed = (0, "client-0: renamed\n")
        assert offbeat("server", "clients", "rename", str(folder), "client-0", "Würzburg")[:2] == renamed
        assert offbeat("server", "clients", "rename", str(folder), "Würzburg", "病院")[:2] == renamed
        for which, problem in (
            ("ward 3", "'ward 3' may be several clients: write one of client-1, client-2"),
            ("0", "'0' may be several clients: write one of client-0, client-3"),
            ("client-9", "there is no client 'client-9': offbeat server clients lists names and numbers"),
            ("-1", None), ("\u0663", "there is no client '\u0663'"), ("9" * 5000, "there is no client"),
        ):  # fmt: skip
            code, _, error = offbeat("server", "clients", "revoke", str(folder), which)
            assert (code, error.count("\n")) == (2, 1)
            assert problem is None or problem in error
        assert "visible characters only" in offbeat("server", "clients", "rename", str(folder), "1", "a\nb")[2]
        assert offbeat("server", "clients", "revoke", str(folder), "病院")[:2] == (0, "client-0: revoked\n")
        assert offbeat("server", "clients", "revoke", str(folder), "4")[:2] == (0, "client-4: revoked\n")
        listed = json.loads(offbeat("server", "clients", str(folder), "--json")[1])
        assert listed["listens"]
        assert [row["revoked"] is not None for row in listed["clients"]] == [True, False, False, False, True]
        assert offbeat("server", "tokens", "revoke", str(folder), "client-1")[0] == 2  # it is not a token's id
    listed = json.loads(offbeat("server", "clients", str(folder), "--json")[1])
    assert (listed["listens"], listed["clients"][0]["name"]) == (False, "病院")


def test_a_run_is_paused_resumed_and_extended(offbeat: Command, tmp_path: Path) -> None:
    folder = tmp_path / "server"
    with running(folder, stop_versions=1, config={"stop": {"versions": 1}}) as server:
        peers = [server.enrol(), server.enrol()]
        assert offbeat("server", "pause", str(folder))[:2] == (0, "Paused\n")
        assert "paused: True\n" in offbeat("server", "status", str(folder))[1]
        assert offbeat("server", "resume", str(folder))[:2] == (0, "Resumed\n")
        for peer in peers:
            assert peer.send(peer.check_in(), ONES)["counted"]
        assert "finished: True\n" in offbeat("server", "status", str(folder))[1]
        assert offbeat("server", "extend", str(folder), "4")[:2] == (0, "The run ends at version 4\n")
        assert "may only grow" in offbeat("server", "extend", str(folder), "3")[2]
        assert peers[0].check_in()
    code, shown, _ = offbeat("server", "status", str(folder))
    assert code == 3
    assert shown.startswith("server: stopped\n")
    assert "stop versions: 4\n" in shown
