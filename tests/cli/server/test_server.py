from collections.abc import Callable

import pytest

from offbeat.service.server import admin

Command = Callable[..., tuple[int, str, str]]


def test_the_status_shows_the_evaluation_by_clients(offbeat: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    accuracy = {"clients": 18, "weighted": 0.91234, "mean": 0.9, "p10": 0.5, "p50": 0.95, "p90": 1.0, "worst": 0.25}
    summary = {"version": 12, "asked": 20, "answered": 18, "examples": 240, "metrics": {"accuracy": accuracy}}
    monkeypatch.setattr(admin, "status", lambda _: {"version": 13, "evaluated_by_clients": summary})
    assert offbeat("server", "status", "server")[1].splitlines() == [
        "version: 13",
        "evaluated by clients: version 12, 18 of 20 clients, 240 examples",
        "accuracy on clients: by examples 0.9123, mean 0.9, 10th percentile 0.5, 90th percentile 1, worst tenth 0.25",
    ]
    monkeypatch.setattr(admin, "status", lambda _: {"version": 13, "evaluated_by_clients": None})
    assert offbeat("server", "status", "server")[1] == "version: 13\n"
