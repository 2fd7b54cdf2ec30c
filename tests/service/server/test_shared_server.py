"""Commands for a server whose log and files are shared."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from offbeat.service.store.shared_store import opened_shared
from offbeat.service.store_settings import StoreSettings, note_shared_store
from tests.object_store import object_store as object_store
from tests.postgres import postgres as postgres
from tests.postgres import store as store
from tests.service.conftest import LENGTH, running

Command = Callable[..., tuple[int, str, str]]

FILE = """
[service]
folder = "one"
clients = 5
[store]
log = "{log}"
blobs = "{blobs}"
[model]
name = "own_model.py:make"
[local]
steps = 1
batch_size = 1
lr = 0.1
[algorithm]
algorithm = "fedbuff"
"""


def facts(text: str) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in text.splitlines())


@pytest.mark.parametrize("kind", ["folder", "objects"])
def test_the_status_names_the_leader_and_measures_the_store(
    offbeat: Command,
    tmp_path: Path,
    store: StoreSettings,
    kind: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if kind == "objects":
        monkeypatch.setenv("AWS_ENDPOINT_URL", request.getfixturevalue("object_store"))
        for name, value in (("ALLOW_HTTP", "true"), ("ACCESS_KEY_ID", "any"), ("SECRET_ACCESS_KEY", "any")):
            monkeypatch.setenv(f"AWS_{name}", value)
        store = store.model_copy(update={"blobs": "s3://offbeat/status"})
    file = tmp_path / "server.toml"
    (tmp_path / "own_model.py").write_text("def make(): raise AssertionError\n")
    file.write_text(FILE.format(log=store.log, blobs=store.blobs))
    code, _, error = offbeat("server", "status", str(file))
    assert (code, error.count("\n")) == (2, 1)
    assert error.endswith(" does not hold a run: start a server with this store.log\n")
    with running(tmp_path / "one", store=store) as server, opened_shared(store) as other:
        peer = server.enrol(name="ward 3")
        visit = peer.check_in()
        assert visit is not None
        peer.send(visit, torch.ones(LENGTH))
        last = server.service.engine.log_writer.number
        asyncio.run(other.log.stand_by(last - 2, 1, "two"))
        code, out, _ = offbeat("server", "status", str(file))
        found = facts(out)
        assert code == 0
        assert "server" not in found
        assert found["leader"].endswith(" s")
        assert ", epoch 1, has led for " in found["leader"]
        assert found["standby"].startswith("two, 2 rows behind, has followed for ")
        assert found["log"].startswith(f"{store.log}, row {last}, answers in ")
        assert found["blobs"].startswith(f"{store.blobs}, put ")
        assert found["counted"] == "1"
        assert "version" in found  # the leader's own answer
        # On a machine whose server stands by.
        note_shared_store(tmp_path, store)
        assert facts(offbeat("server", "status", str(tmp_path))[1])["counted"] == "1"
        clients = json.loads(offbeat("server", "clients", "list", str(tmp_path), "--json")[1])
        assert [client["name"] for client in clients["clients"]] == ["ward 3"]
        code, _, error = offbeat("server", "pause", str(tmp_path))
        assert code == 2
        assert "run this on the machine that leads, which offbeat server status names" in error
        assert " led by " in offbeat("server", "list", str(tmp_path))[1]
    code, out, _ = offbeat("server", "status", str(tmp_path))
    found = facts(out)
    assert (code, found["server"], found["counted"], found["enrolled"]) == (3, "stopped", "1", "1")
    assert "leader" not in found  # it has ended
    assert offbeat("server", "audit", "verify", str(file))[1].startswith("5 entries")
    assert len(offbeat("server", "audit", "show", str(file))[1].splitlines()) == 5
    output = tmp_path / "model.safetensors"
    assert offbeat("server", "export", str(file), "--output", str(output))[1].startswith("Version 0: ")
    assert set(load_file(output)) == {"weight", "bias"}
    assert offbeat("server", "backup", str(file), str(tmp_path / "copy"))[1].startswith(
        f"{tmp_path / 'copy'}: up to row "
    )
    assert facts(offbeat("server", "status", str(tmp_path / "copy"))[1])["counted"] == "1"


def test_a_store_that_does_not_answer_is_one_line(offbeat: Command, tmp_path: Path) -> None:
    note_shared_store(tmp_path, StoreSettings(log="postgresql://me@localhost:1/x", blobs=f"file://{tmp_path}/blobs"))
    for command in ("status", "export", "list"):
        code, _, error = offbeat("server", command, str(tmp_path))
        assert (code, error.count("\n")) == (2, 1)
        assert error.startswith("offbeat: cannot use the log postgresql://me@localhost:1/x: ")
