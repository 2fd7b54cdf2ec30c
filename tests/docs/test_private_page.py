"""docs/privacy/try-it.md: its files and commands, as shown."""

import json
import os
import re
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from offbeat_private.helper.commands import helper

ROOT = Path(__file__).parents[2]
MODULES = {"offbeat": "offbeat", "offbeat-helper": "offbeat_private.helper"}


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


def program(command):
    name, *arguments = command
    return [sys.executable, "-m", MODULES[name], *arguments]


def test_the_private_run_of_the_page(tmp_path, offbeat, run_main, monkeypatch):
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
    environment = os.environ | {"OMP_NUM_THREADS": "1"}

    def output(command):
        code, out, err = offbeat(*command[1:])
        assert code == 0, err
        return out

    (tmp_path / "client.py").write_text((ROOT / "examples/service/client.py").read_text("utf-8"), encoding="utf-8")
    roster = files["roster.toml"]
    own = iter([output(command).strip() for command in keys])
    roster = re.sub(r"obk_[\w-]+", lambda _: next(own), roster)
    (tmp_path / "roster.toml").write_text(roster, encoding="utf-8")
    helper_port, port = free_port(), free_port()
    server = files["server.toml"].replace("9443", helper_port).replace("[privacy]", f"port = {port}\n[privacy]", 1)
    (tmp_path / "server.toml").write_text(server, encoding="utf-8")
    (token,) = re.findall(r"obh_\S+", run_main(helper, *enrol)[1])
    (tmp_path / "helper-token").write_text(token, encoding="utf-8")
    with ExitStack() as stack:

        def start(command):
            process = subprocess.Popen(
                program(command), cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
            )
            stack.callback(process.stdout.close)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            return process

        start([*serve_helper, "--port", helper_port]).stdout.readline()
        serving = start([*serve, "--set", "stop.versions=10"])
        *_, join = (serving.stdout.readline() for _ in ("Listening", "Certificate", "Enrol clients"))
        assert f" --terms {tmp_path / 'helper' / 'terms.json'} " in join
        clients = [start([part.replace("8443", port) for part in command]) for command in joins]
        assert [client.wait(timeout=300) for client in clients] == [0, 0, 0]
        status = output(["offbeat", "server", "status", "server"])
        assert "version: 10\n" in status
        assert "sums: 10 opened, 0 waiting, 0 discarded" in status
        assert "epsilon: unbounded, without noise\nepsilon, replace-one: unbounded, without noise\n" in status
        assert "batches: 10\n" in output(["offbeat", "helper", "status", "--folder", "helper"])
        evaluations = tmp_path / "server" / "evaluations.jsonl"
        deadline = time.monotonic() + 60
        while not evaluations.exists() or '"version": 10' not in evaluations.read_text("utf-8"):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert json.loads(evaluations.read_text("utf-8").splitlines()[-1])["accuracy"] > 0.8
