"""Commands ``join`` and ``client``."""

import importlib.util
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from offbeat_client.client_folder.identity import ClientFolder
from offbeat_client.client_folder.private_record import TrainedModels
from offbeat_client.user_client import make_user_client
from offbeat_core.errors import OffbeatError
from offbeat_private.masks.signing_key import public_bytes

from offbeat.cli import client as client_commands
from offbeat.client import LocalSGD
from offbeat.client import torch_client as client_run

Command = Callable[..., tuple[int, str, str]]


def test_only_the_built_in_client_moves_to_a_device():
    client = LocalSGD(torch.nn.Linear(1, 1), torch.nn.functional.mse_loss, (torch.zeros(2, 1), torch.zeros(2, 1)))
    made = client_commands._on_device(lambda number: client, "meta-less")
    with pytest.raises(OffbeatError, match="device = 'meta-less': must be auto, cpu, cuda, cuda:N or mps"):
        made(0)
    assert client_commands._on_device(lambda number: client, "cpu")(0) is client
    with pytest.raises(OffbeatError, match="--device is for clients that are LocalSGD: move a model of your own"):
        client_commands._on_device(lambda number: lambda model, visit: None, "cpu")(0)


def test_a_client_on_a_device_is_made_from_the_runs_name() -> None:
    client = LocalSGD(torch.nn.Linear(1, 1), torch.nn.functional.mse_loss, (torch.zeros(2, 1), torch.zeros(2, 1)))
    made = client_commands._on_device(lambda number, run: {"wards": client}[run], "cpu")
    assert make_user_client(made, 3, "wards").made is client


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


def test_a_client_stays_if_it_is_told_to(offbeat: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    joined: list[dict[str, Any]] = []
    monkeypatch.setattr(client_run, "run_client", lambda *_, **named: joined.append(named) or 1)
    (tmp_path / "mine.py").write_text("def make(number):\n    pass\n", encoding="utf-8")
    for words in ((), ("--stay",)):
        offbeat("join", "https://host", "--client", f"{tmp_path / 'mine.py'}:make", *words)
    assert [named["stay"] for named in joined] == [False, True]


@pytest.mark.parametrize("content", [b"\xef\xbb\xbfobe_1\r\n", b"obe_1\r\n", "obe_1\r\n".encode("utf-16")])
def test_a_token_file_is_taken_as_an_editor_wrote_it(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(content)
    assert client_commands._read_token(tmp_path / "token", None) == "obe_1"
    (tmp_path / "token").write_bytes(b"\x80")
    with pytest.raises(OffbeatError, match="it is not text"):
        client_commands._read_token(tmp_path / "token", None)


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


class TestKey:
    def test_makes_a_key_once_and_prints_its_public_half(self, offbeat: Command, tmp_path: Path) -> None:
        folder = tmp_path / "new" / "client"
        code, out, err = offbeat("client", "key", "--folder", str(folder))
        assert (code, err) == (0, "")
        path = folder / "signing-key"
        key = load_pem_private_key(path.read_bytes(), password=None)
        assert isinstance(key, Ed25519PrivateKey)
        assert public_bytes(out.strip()) == key.public_key().public_bytes_raw()
        assert [stat.S_IMODE(each.stat().st_mode) for each in (folder, path)] == [0o700, 0o600]
        with ClientFolder(folder):  # while the client is at work, too
            assert offbeat("client", "key", "--folder", str(folder)) == (0, out, "")

    def test_is_another_one_for_each_folder(self, offbeat: Command, tmp_path: Path) -> None:
        assert len({offbeat("client", "key", "--folder", str(tmp_path / name))[1] for name in "ab"}) == 2

    def test_of_a_wrong_file_is_one_line(self, offbeat: Command, tmp_path: Path) -> None:
        (tmp_path / "signing-key").write_text("no key")
        code, out, err = offbeat("client", "key", "--folder", str(tmp_path))
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert "is not an Ed25519 key" in err


class TestCompare:
    @staticmethod
    def kept(folder: Path, *digests: str) -> str:
        folder.mkdir()
        models = TrainedModels(folder, bytes(32))
        for version, digest in enumerate(digests):
            models.keep(version, digest * 64)
        (path,) = folder.iterdir()
        return str(path)

    def test_counts_the_versions_that_both_clients_got(self, offbeat: Command, tmp_path: Path) -> None:
        one, two = self.kept(tmp_path / "a", "a", "b", "c"), self.kept(tmp_path / "b", "a", "b")
        assert offbeat("client", "compare-models", one, two) == (
            0,
            "2 versions are in both, with the same models\n",
            "",
        )
        three = self.kept(tmp_path / "c", "a")
        assert offbeat("client", "compare-models", one, three)[1] == "1 version is in both, with the same models\n"

    def test_says_in_one_line_that_models_differ(self, offbeat: Command, tmp_path: Path) -> None:
        one, two = self.kept(tmp_path / "a", "a", "b"), self.kept(tmp_path / "b", "a", "c")
        code, out, err = offbeat("client", "compare-models", one, two)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert "the server gave different models as version 1: bbbb" in err
