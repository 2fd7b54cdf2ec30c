"""Requests of the admin for a server's folder."""

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file

from offbeat.algorithms import FedBuff
from offbeat.algorithms.components.staleness import constant
from offbeat.cli import service as cli_service
from offbeat.errors import OffbeatError
from offbeat.service.server.admin import newest_model, runs, status
from tests.service.conftest import LENGTH, running

ONES = torch.ones(LENGTH)


def plain():
    """Every update weighs the same, so that the model says how many there were."""
    return FedBuff(buffer_size=2, concurrency=4, staleness=constant())


def work(server, peers):
    for peer in peers:
        peer.send(peer.check_in(), ONES)


def test_the_status_and_the_list_show_the_progress_of_a_run(tmp_path):
    with running(tmp_path / "one", config={"algorithm": {"algorithm": "fedbuff"}}) as server:
        work(server, [server.enrol() for _ in range(3)])
        now = status(tmp_path / "one")
        assert (now["version"], now["counted"], now["enrolled"], now["clients"]) == (1, 3, 3, 5)
        (run,) = runs(tmp_path)
        assert (run.folder, run.algorithm, run.version, run.counted) == (tmp_path / "one", "fedbuff", 1, 3)
        assert run.listens
        listed = CliRunner().invoke(cli_service.runs, [str(tmp_path)])
        assert listed.output == f"{tmp_path / 'one'}: fedbuff, version 1, listens, 3 updates counted\n"
        shown = CliRunner().invoke(cli_service.status, [str(tmp_path / "one")])
        assert "version: 1\n" in shown.output
    (run,) = runs(tmp_path / "one")
    assert (run.listens, run.version) == (False, 1)
    with pytest.raises(OffbeatError, match="does not answer"):
        status(tmp_path / "one")
    with pytest.raises(OffbeatError, match="not the folder of a server"):
        status(tmp_path)


def test_the_newest_model_is_exported(tmp_path):
    with running(tmp_path / "one", plain) as server:
        peers = [server.enrol() for _ in range(3)]
        work(server, [*peers, *peers])
        output = tmp_path / "model.safetensors"
        said = CliRunner().invoke(cli_service.export, [str(tmp_path / "one"), "--output", str(output)])
        version = int(said.output.partition(":")[0].removeprefix("Version "))
        assert version >= 2
    assert torch.equal(load_file(output)["bias"], torch.full((2,), -float(version)))
    with pytest.raises(OffbeatError, match="does not hold a model"):
        newest_model(tmp_path)
