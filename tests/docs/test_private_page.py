"""docs/privacy/try-it.md: its files and commands, as shown."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from offbeat_private.helper.commands import helper

from tests.e2e.server_process import until

ROOT = Path(__file__).parents[2]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


@pytest.mark.long
def test_the_private_run_of_the_page(tmp_path, offbeat, run_main, launcher, monkeypatch):
    """With a third of the page's versions."""
    monkeypatch.chdir(tmp_path)
    part = (ROOT / "docs/privacy/try-it.md").read_text("utf-8")
    files = dict(re.findall(r'^```toml title="([\w.]+)"\n(.*?)^```', part, re.S | re.M))
    keys, (enrol, serve_helper), (serve, *joins) = (
        [line.split() for line in block.splitlines()]
        for block in re.findall(r"^```\n(offbeat.*?)^```", part, re.S | re.M)
    )
    assert (len(keys), len(joins)) == (3, 3)
    assert "versions = 30" in files["server.toml"]

    def start(command, file):
        (tmp_path / file).touch()
        return launcher.tell({"command": command[1:], "folder": str(tmp_path), "output": str(tmp_path / file)})

    def printed(file):
        return (tmp_path / file).read_text("utf-8")

    def output(command):
        code, out, err = offbeat(*command[1:])
        assert code == 0, err
        return out

    assert offbeat("new", str(tmp_path / "template"), "--template", "service")[0] == 0
    shutil.copytree(tmp_path / "template", tmp_path, dirs_exist_ok=True)
    roster = files["roster.toml"]
    own = iter([output(command).strip() for command in keys])
    roster = re.sub(r"obk_[\w-]+", lambda _: next(own), roster)
    (tmp_path / "roster.toml").write_text(roster, encoding="utf-8")
    helper_port, port = free_port(), free_port()
    server = files["server.toml"].replace("9443", helper_port).replace("[privacy]", f"port = {port}\n[privacy]", 1)
    (tmp_path / "server.toml").write_text(server, encoding="utf-8")
    (token,) = re.findall(r"obh_\S+", run_main(helper, *enrol)[1])
    (tmp_path / "helper-token").write_text(token, encoding="utf-8")
    command = [sys.executable, "-m", "offbeat_private.helper", *serve_helper[1:], "--port", helper_port]
    with ExitStack() as stack:
        served = stack.enter_context(subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True))
        stack.callback(served.terminate)
        served.stdout.readline()
        serving = start([*serve, "--set", "stop.versions=10"], "serving.txt")
        stack.callback(os.kill, serving, signal.SIGTERM)
        until(lambda: "\nLive page: " in printed("serving.txt"))
        (join,) = re.findall("^Enrol clients: (.*)$", printed("serving.txt"), re.MULTILINE)
        assert f" --terms {tmp_path / 'helper' / 'terms.json'} " in join
        clients = [start([part.replace("8443", port) for part in command], "clients.txt") for command in joins]
        for client in clients:
            assert until(lambda client=client: launcher.tell({"ended": client}), 300.0) == [0], printed("clients.txt")
        status = output(["offbeat", "server", "status", "server"])
        assert "version: 10\n" in status
        assert "sums: 10 opened, 0 waiting, 0 discarded" in status
        assert "epsilon: unbounded, without noise\nepsilon, replace-one: unbounded, without noise\n" in status
        assert "batches: 10\n" in output(["offbeat", "helper", "status", "--folder", "helper"])
        evaluations = tmp_path / "server" / "evaluations.jsonl"
        until(lambda: evaluations.exists() and '"version": 10' in evaluations.read_text("utf-8"), 60.0)
        assert json.loads(evaluations.read_text("utf-8").splitlines()[-1])["accuracy"] > 0.8
