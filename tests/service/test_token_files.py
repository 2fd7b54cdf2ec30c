"""Tokens in files, so that they are not in command lines or outputs."""

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from offbeat.cli import service as cli_service
from offbeat.errors import OffbeatError
from tests.e2e.server_process import MODEL, SERVER, free_port
from tests.service.conftest import running

CLIENT = """
def make_client(number):
    return lambda model, visit: (model, 3)
"""


def run(command, *arguments):
    result = CliRunner().invoke(command, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_client_joins_with_the_file_of_a_token(tmp_path):
    (tmp_path / "client.py").write_text(CLIENT)
    common = ["--client", tmp_path / "client.py:make_client", "--folder", tmp_path / "client", "--visits", "1"]
    with running(tmp_path / "server") as server:
        join = (cli_service.join, server.url, *common)
        token = tmp_path / "server" / "enrolment-token"
        with pytest.raises(OffbeatError, match="not both"):
            run(*join, "--token-file", token, "--token", "obe_1")
        with pytest.raises(OffbeatError, match=r"cannot read the token in .*: copy enrolment-token"):
            run(*join, "--token-file", tmp_path / "missing")
        assert run(*join, "--token-file", token).endswith("Done: 1 updates counted\n")


@pytest.mark.skipif(os.name == "nt", reason="sends signals")
def test_the_server_prints_no_token(tmp_path):
    (tmp_path / "own_model.py").write_text(MODEL)
    file = tmp_path / "server.toml"
    values = {"folder": "server", "port": free_port(), "length": 6, "clients": 2, "server": ""}
    file.write_text(SERVER.format(algorithm="algorithm = 'fedbuff'", **values))
    process = subprocess.Popen([sys.executable, "-m", "offbeat", "serve", str(file)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = "".join(process.stdout.readline() for _ in range(3))
    process.terminate()
    said += process.communicate(timeout=60)[0]
    assert f"--token-file {tmp_path / 'server' / 'enrolment-token'}" in said
    assert "obe_" not in said
