"""Commands ``server status`` and ``server audit``."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from offbeat_client.client_run import run_client

from offbeat.service.server import admin
from tests.service.conftest import running

Command = Callable[..., tuple[int, str, str]]


def test_the_status_shows_the_evaluation_by_clients(offbeat: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    accuracy = {"clients": 18, "weighted": 0.91234, "mean": 0.9, "p10": 0.5, "p50": 0.95, "p90": 1.0, "worst": 0.25}
    summary = {"version": 12, "asked": 20, "answered": 18, "examples": 240, "metrics": {"accuracy": accuracy}}
    monkeypatch.setattr(admin, "status", lambda *_: {"version": 13, "evaluated_by_clients": summary})
    assert offbeat("server", "status", "server")[1].splitlines() == [
        "version: 13",
        "evaluated by clients: version 12, 18 of 20 clients, 240 examples",
        "accuracy on clients: by examples 0.9123, mean 0.9, 10th percentile 0.5, 90th percentile 1, worst tenth 0.25",
    ]
    monkeypatch.setattr(admin, "status", lambda *_: {"version": 13, "problems": ["a", "b"]})
    assert offbeat("server", "status", "server")[1] == "problem: a\nproblem: b\nversion: 13\n"
    monkeypatch.setattr(admin, "status", lambda *_: {"version": 13, "evaluated_by_clients": None})
    assert offbeat("server", "status", "server")[1] == "version: 13\n"


def test_the_status_names_the_best_version(offbeat: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    best = {"version": 40, "metric": "accuracy", "value": 0.85123, "sha256": "ab"}
    for value, line in ((best, "best: version 40, accuracy 0.8512\n"), (None, "")):
        monkeypatch.setattr(admin, "status", lambda *_, value=value: {"version": 50, "best": value})
        assert offbeat("server", "status", "server")[1] == f"version: 50\n{line}"


def test_the_best_version_is_exported_where_one_is_kept(offbeat: Command, tmp_path: Path) -> None:
    with running(tmp_path / "one"):
        pass
    output = str(tmp_path / "model.safetensors")
    code, _, errors = offbeat("server", "export", str(tmp_path / "one"), "--best", "--output", output)
    assert (code, len(errors.splitlines())) == (2, 1)
    assert "no best version is kept: set service.keep_best" in errors


def test_a_clients_heads_verify_the_log_until_it_is_cut(offbeat: Command, tmp_path: Path) -> None:
    folder, home = tmp_path / "server", tmp_path / "client"

    def fit(model, visit):
        return {name: np.zeros_like(array) for name, array in model.items()}, 3

    with running(folder) as server:
        run_client(server.url, lambda _: fit, home, enrolment_token=server.enrolment_token, name="ward 3", visits=2)
    (head,) = (home / "audit-heads").read_text().splitlines()
    assert head.startswith("4:")  # the start, two tokens, the client
    code, out, _ = offbeat("server", "audit", "verify", str(folder))
    assert (code, out.splitlines()[0]) == (0, "5 entries, not compared with a head")
    assert out.splitlines()[1].startswith("head: 5:")
    code, out, _ = offbeat(
        "server", "audit", "verify", str(folder), "--head", head, "--heads", str(home / "audit-heads")
    )
    assert (code, out.splitlines()[0]) == (0, "5 entries, agrees with 2 heads")
    shown = [json.loads(line) for line in offbeat("server", "audit", "show", str(folder), "--json")[1].splitlines()]
    assert [entry["number"] for entry in shown] == [1, 2, 3, 4, 5]
    assert (shown[3]["kind"], shown[3]["client"]) == ("client enrolled", 0)
    line = offbeat("server", "audit", "show", str(folder))[1].splitlines()[3]
    assert line.startswith(f"4  {shown[3]['at']}  client enrolled  client=0  token=")
    other = f"4:{'0' * 64}"
    code, _, error = offbeat("server", "audit", "verify", str(folder), "--head", other)
    assert (code, error.count("\n")) == (2, 1)
    assert "written anew" in error
    assert offbeat("server", "audit", "verify", str(folder), "--head", f"99{head[1:]}")[0] == 2
    assert offbeat("server", "audit", "verify", str(folder), "--head", "x")[0] == 2
    assert offbeat("server", "audit", "verify", str(tmp_path))[0] == 2
