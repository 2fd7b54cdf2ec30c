"""Commands of the service, whose server is a stub."""

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from offbeat.cli import service
from offbeat.errors import OffbeatError
from offbeat.service.client import LocalSGD
from offbeat.service.client import run as client_run
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


def test_only_a_valid_token_expires(offbeat: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    token = {"id": "a", "kind": "enrolment", "state": "valid", "uses": 3, "expires_seconds": 5400.0, "name": "ward 3"}
    others = [{"id": "b", "state": "revoked"}, {"id": "c", "uses": None, "expires_seconds": None, "name": ""}]
    monkeypatch.setattr(admin, "tokens", lambda _: [token, *(token | other for other in others)])
    assert offbeat("tokens", "server")[1].splitlines() == [
        "a: enrolment, valid, 3 uses left, expires in 1.5 hours, ward 3",
        "b: enrolment, revoked, 3 uses left, ward 3",
        "c: enrolment, valid",
    ]


def test_only_the_built_in_client_moves_to_a_device():
    client = LocalSGD(torch.nn.Linear(1, 1), torch.nn.functional.mse_loss, (torch.zeros(2, 1), torch.zeros(2, 1)))
    made = service._on_device(lambda number: client, "meta-less")
    with pytest.raises(OffbeatError, match="device = 'meta-less': must be auto, cpu, cuda, cuda:N or mps"):
        made(0)
    assert service._on_device(lambda number: client, "cpu")(0) is client
    with pytest.raises(OffbeatError, match="--device is for clients that are LocalSGD: move a model of your own"):
        service._on_device(lambda number: lambda model, visit: None, "cpu")(0)


@pytest.mark.parametrize("options", [{}, {"terms": "terms.json", "privacy-key": "key"}])
def test_a_client_joins_with_terms_and_a_key(
    offbeat: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    joined: list[dict[str, Any]] = []
    monkeypatch.setattr(client_run, "run_client", lambda *_, **named: joined.append(named) or 3)
    (tmp_path / "mine.py").write_text("def make(number):\n    pass\n", encoding="utf-8")
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    client = f"{tmp_path / 'mine.py'}:make"
    assert offbeat("join", "https://host", "--client", client, *words)[1] == "Done: 3 updates counted\n"
    expected = {"terms": Path("terms.json"), "privacy_key": Path("key")} if options else {}
    assert {name: joined[0][name] for name in ("terms", "privacy_key")} == {
        "terms": None,
        "privacy_key": None,
    } | expected


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
