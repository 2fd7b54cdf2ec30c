"""Tests that the pages on the service work as shown."""

import json
import re
from pathlib import Path

from tests.e2e.private_service import Command
from tests.e2e.server_process import until
from tests.service.conftest import running

CONCEPTS = Path(__file__).parents[2] / "docs" / "concepts"


def test_the_client_that_the_page_shows_takes_part(tmp_path):
    (example,) = re.findall(r"^```python\n(.*?)^```", (CONCEPTS / "service.md").read_text("utf-8"), re.S | re.M)
    with running(tmp_path / "server", stop_versions=2) as server:
        names = {"folder": tmp_path / "client", "token": server.enrolment_token, "ca": None}
        exec(example.replace("https://127.0.0.1:8443", server.url), names)
        status = server.admin.http.get("/v1/status").json()
    assert (status["version"], status["counted"]) == (2, 4)


def test_the_model_and_data_that_the_page_shows_are_trained_by_two_clients(launcher, tmp_path):
    page = (CONCEPTS / "service.md").read_text("utf-8")
    files = re.findall(r'^```\w+ title="([\w.]+)"\n(.*?)^```', page, re.S | re.M)
    assert [name for name, _ in files] == ["readings.py", "server.toml", "client.py"]
    for name, text in files:
        (tmp_path / name).write_text(text.replace('folder = "server"', 'folder = "server"\nport = 0'), encoding="utf-8")
    commands = re.findall(r"^offbeat (.* (?:client-\d|server.toml))$", page.partition("## Your own model")[2], re.M)
    serve, *joins = [command.split() for command in commands]
    assert len(joins) == 2
    server = Command(launcher, tmp_path, "server", *serve)
    try:
        (url,) = until(lambda: re.findall(r"^Listening at (\S+):", server.log.read_text(), re.M))
        clients = [
            Command(
                launcher, tmp_path, f"client-{number}", *(url if part.startswith("https:") else part for part in join)
            )
            for number, join in enumerate(joins)
        ]
        assert [until(client.ended, 300) for client in clients] == [[0], [0]]
        evaluations = tmp_path / "server" / "evaluations.jsonl"
        until(lambda: evaluations.exists() and '"version": 20' in evaluations.read_text())
        accuracy = json.loads(evaluations.read_text().splitlines()[-1])["accuracy"]
        assert accuracy > 0.9
    finally:
        server.kill()
