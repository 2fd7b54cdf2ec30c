"""Command ``join``."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from offbeat_core.errors import OffbeatError

from offbeat.cli import join
from offbeat.service.client import LocalSGD
from offbeat.service.client import torch_client as client_run

Command = Callable[..., tuple[int, str, str]]


def test_only_the_built_in_client_moves_to_a_device():
    client = LocalSGD(torch.nn.Linear(1, 1), torch.nn.functional.mse_loss, (torch.zeros(2, 1), torch.zeros(2, 1)))
    made = join._on_device(lambda number: client, "meta-less")
    with pytest.raises(OffbeatError, match="device = 'meta-less': must be auto, cpu, cuda, cuda:N or mps"):
        made(0)
    assert join._on_device(lambda number: client, "cpu")(0) is client
    with pytest.raises(OffbeatError, match="--device is for clients that are LocalSGD: move a model of your own"):
        join._on_device(lambda number: lambda model, visit: None, "cpu")(0)


@pytest.mark.parametrize("options", [{}, {"terms": "terms.json", "privacy-key": "key"}])
def test_a_client_joins_with_terms_and_a_key(
    offbeat: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    joined: list[dict[str, Any]] = []
    monkeypatch.setattr(client_run, "run_client", lambda *_, **named: joined.append(named) or 3)
    (tmp_path / "mine.py").write_text("def make(number):\n    pass\n", encoding="utf-8")
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    client = f"{tmp_path / 'mine.py'}:make"
    assert (
        offbeat("join", "https://host", "--client", client, *words)[1]
        == "Done: 3 updates counted since this process started\n"
    )
    expected = {"terms": Path("terms.json"), "privacy_key": Path("key")} if options else {}
    assert {name: joined[0][name] for name in ("terms", "privacy_key")} == {
        "terms": None,
        "privacy_key": None,
    } | expected


@pytest.mark.parametrize("content", [b"\xef\xbb\xbfobe_1\r\n", b"obe_1\r\n", "obe_1\r\n".encode("utf-16")])
def test_a_token_file_is_taken_as_an_editor_wrote_it(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(content)
    assert join._read_token(tmp_path / "token", None) == "obe_1"
    (tmp_path / "token").write_bytes(b"\x80")
    with pytest.raises(OffbeatError, match="it is not text"):
        join._read_token(tmp_path / "token", None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "give --client or --flower, one of them"),
        (("--client", "mine.py:make", "--flower", "app:app"), "give --client or --flower, one of them"),
        (("--client", "mine.py:make", "--run-config", "a=1"), "--run-config, --node-config and --flower-model are for"),
    ],
)
def test_an_app_or_a_client_joins(offbeat: Command, options: tuple[str, ...], message: str) -> None:
    code, _, errors = offbeat("join", "https://host", *options)
    assert code == 2
    assert message in errors
    assert len(errors.splitlines()) == 1


@pytest.mark.skipif(importlib.util.find_spec("flwr") is not None, reason="Flower is installed")
def test_without_flower_the_error_says_how_to_install_it(offbeat: Command) -> None:
    code, _, errors = offbeat("join", "https://host", "--flower", "app:app")
    assert (code, errors) == (2, "offbeat: --flower needs Flower: pip install 'offbeat[flower]'\n")
