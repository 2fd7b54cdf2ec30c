"""Hostile connections to a server of several runs: none is an error of the server, and none harms a run.

``OFFBEAT_HOSTILE`` says how many; ``make hostile`` makes 100,000.
"""

import json
import logging
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tomli_w
import torch

from offbeat.config.host_file import HostFile
from offbeat.worlds.host import preparing
from tests.service.conftest import Peer
from tests.service.hostile_requests import Attacker, Hostile
from tests.service.hosting.conftest import Host, hosting
from tests.service.http_client import until
from tests.service.test_hostile import NUMBER, THREADS, descriptors, problem_of, resident_mb, send

MODEL = "from torch import nn\n\n\ndef net():\n    return nn.Linear(3, 2, bias=False)\n"
RUN = {
    "service": {"clients": 1000},
    "model": {"name": "model.py:net"},
    "local": {"steps": 1, "batch_size": 1, "lr": 0.1},
    "algorithm": {"algorithm": "fedasync", "concurrency": 1000},
}
_NAMES = [
    *("", ".", "..", "%2e%2e", "..%2f..", "a%2fb", "%00", "%ff%fe", "%ed%a0%80", "é", "%0d%0aX: y", "-a", "a" * 5000),
    *("honest/", "/honest", "honest%2f", "honest%20", "honest;x", "honest?", "honest#", "HONEST", "honest.", "x\\y"),
    *("honest", "nothing", "admin-token", "offbeat.sqlite", "9" * 63),
]
_RESTS = [
    *("", "/", "//", "/v1", "/v1/", "/v1/../../..", "//v1/status", "/v1//status", "/../../v1/status", "/live/", "/x"),
    *("/live/..%2f..%2fadmin-token", "/live/../page.js", "/runs/honest/v1/status", "/v1/work", "/v1/runs", "/v1/sites"),
    *("/healthz", "/openapi.json", "/metrics", "/v1/status?x=%00", "/v1/models/%2e%2e", "/admin-token", "/%2e%2e/v1"),
]
_TEXTS = [
    *("", "\x00", "[" * 30_000, "a = " + "9" * 30_000, "a = " + "{a=" * 5000, "service = 3", "x" * 32_768, "\ud800"),
    *("[model]\nname = '/etc/passwd'", "[service]\nfolder = '/'", "x" * 60_000),
    tomli_w.dumps(RUN | {"model": {"name": "../model.py:net"}}),
    tomli_w.dumps(RUN | {"service": {"clients": 10**18}}),
]
_LABELS = [
    *([], ["gpu"], ["x" * 64], ["-"], [""], ["a"] * 33, ["a", "a"], "gpu", None, [["a"]], [3], ["\ud800"], {"a": 1}),
]


class HostAttacker(Attacker):
    """Makes hostile requests to a server of several runs, and to what it has below ``/runs``."""

    def _make_run_path(self) -> Hostile:
        path = f"/runs/{self._numbers.choice(_NAMES)}{self._numbers.choice(_RESTS)}"
        method = self._numbers.choice(["GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "TRACE", "runs"])
        return Hostile("run path", [self._json(method, path, b"{}")])

    def _make_work(self) -> Hostile:
        body = {
            "wait_seconds": self._numbers.choice([0, 0.1, 60, -1, 1e308, "1", None]),
            "without": self._numbers.choice([[], ["honest"], ["../x"], ["a"] * 1001, ["a" * 64], "honest", {"a": 1}]),
        }
        return Hostile("work", [self._json("POST", "/v1/work", json.dumps(body).encode())])

    def _make_work_that_is_left(self) -> Hostile:
        body = json.dumps({"wait_seconds": 60}).encode()
        return Hostile("work that is left", [self._json("POST", "/v1/work", body)], is_cut=True)

    def _make_run(self) -> Hostile:
        name = self._numbers.choice([*_NAMES, "x", None, 3, ["honest"]])
        body = json.dumps({"name": name, "file": self._numbers.choice(_TEXTS)}).encode()
        return Hostile("run", [self._json("POST", "/v1/runs", body)])

    def _make_labels(self) -> Hostile:
        labels = self._numbers.choice(_LABELS)
        if self._numbers.random() < 0.5:
            body = {"kind": self._numbers.choice(["enrolment", "viewer", "client", 3]), "labels": labels}
            return Hostile("labels", [self._json("POST", "/v1/tokens", json.dumps(body).encode())])
        number = self._numbers.choice(["1", "-1", "9" * 30, "1e3", "%31", "0x1", "1/"])
        body = json.dumps({"labels": labels}).encode()
        return Hostile("labels", [self._json("POST", f"/v1/sites/{number}/labels", body)])

    def _make_enrolment(self) -> Hostile:
        body = {"name": self._numbers.choice(["", "x" * 5000, "\ud800", "a\nb", None]), "token": "obc_" + "A" * 43}
        return Hostile("enrolment", [self._json("POST", "/v1/enrol", json.dumps(body).encode())])


def attacker_of(server: Host, site: str, seed: int) -> HostAttacker:
    def routes(peer: Peer, prefix: str) -> list[tuple[str, str]]:
        described = peer.http.get("/openapi.json").json()["paths"]
        return [(method.upper(), prefix + path) for path, methods in described.items() for method in methods]

    found = routes(server.admin, "") + routes(server.peer(server.admin.token, "honest"), "/runs/honest")
    assert len(found) > 40
    # A new token would end the site's.
    found = [route for route in found if not route[1].endswith("/v1/token")]
    tokens = ["obc_" + "A" * 43, site, server.admin.token or "", server.token("operator"), server.token("enrolment")]
    return HostAttacker(found, tokens, random.Random(seed))


def test_hostile_connections_harm_no_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    file = HostFile.model_validate({"service": {"folder": str(tmp_path / "server"), "tls": False}})
    seed = random.SystemRandom().randrange(2**32)
    print(f"random numbers from seed {seed}")
    kinds, statuses, problems, memory = Counter[str](), Counter[int](), list[str](), list[float]()
    with hosting(tmp_path / "server", prepare_file=preparing(file, tmp_path), connections_per_address=2000) as server:
        made = server.admin.http.post("/v1/runs", json={"name": "honest", "file": tomli_w.dumps(RUN)})
        assert made.status_code == 201, made.text
        honest, victim = server.enrol("honest"), server.enrol("victim")
        attacker, port = attacker_of(server, victim.token, seed), int(server.url.rpartition(":")[2])

        def attack(hostile: Hostile) -> None:
            kinds[hostile.kind] += 1
            answer = send(port, hostile)
            if answer.startswith(b"HTTP/1.1 "):
                statuses[int(answer[9:12])] += 1
            problem = problem_of(hostile, answer) or long_detail(answer)
            if problem is not None:
                problems.append(problem)

        before = descriptors()
        with caplog.at_level(logging.ERROR), ThreadPoolExecutor(THREADS) as pool:
            for batch in range(0, NUMBER, 1000):
                first = [make() for make in attacker.kinds.values()] if batch == 0 else []
                list(pool.map(attack, [*first, *(attacker.next() for _ in range(min(1000, NUMBER - batch)))]))
                memory.append(round(resident_mb()))
        assert problems == []
        assert [record.getMessage() for record in caplog.records if record.exc_info] == []
        assert len(kinds) >= len(attacker.kinds)
        assert memory[-1] < memory[len(memory) // 2] + 50
        assert sum(statuses.values()) > NUMBER // 2
        for path in ("resume", "extend"):
            server.peer(server.admin.token, "honest").http.post(f"/v1/admin/{path}", json={"versions": 10**6})
        assert {run["state"] for run in server.runs().values()} == {"at work"}
        assert honest.find_work()["run"] == "honest"
        visit = honest.at("honest").check_in()
        assert visit is not None
        assert honest.at("honest").send(visit, torch.ones(6))["counted"]
        # Nobody who has left still waits, and nothing that was sent has counted.
        until(lambda: server.runs()["honest"]["waiting"] == 0)
        assert server.runs()["honest"]["counted"] == 1
        until(lambda: descriptors() <= before + 30, 90)
    with capsys.disabled():
        total, answers = sum(kinds.values()), dict(sorted(statuses.items()))
        print(f"\n  {total} hostile connections of {len(kinds)} kinds; answers: {answers}; MB: {memory[::10]}")


def long_detail(answer: bytes) -> str | None:
    """Return what is wrong with a refusal, which is a line; each mistake in a run's file has its own."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if b"application/problem+json" not in head or not body.startswith(b"{"):
        return None
    detail = json.JSONDecoder().raw_decode(body.decode(errors="replace"))[0]["detail"]
    has_lines = "\n" in detail and not detail.startswith("run ")
    return f"a long refusal: {detail[:100]!r}" if len(detail) > 2000 or has_lines else None
