"""Peers of a served run that evaluate versions."""

import json
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import torch

from offbeat.algorithms import FedBuff
from tests.service.conftest import LENGTH, Peer, Served, body_of, running

ONES = torch.ones(LENGTH)


@contextmanager
def serving(folder: Path, number: int = 2, every: int = 2, **settings: Any) -> Generator[Served]:
    """Run a server that makes a version of each update, and has every second one evaluated by two clients."""
    settings = {"make": lambda: FedBuff(buffer_size=1, concurrency=8), "evaluate_every": every, **settings}
    with running(folder, evaluate_on_clients=number, **settings) as served:
        yield served


def able(peer: Peer) -> Peer:
    peer.http.headers["Offbeat-Supports"] = "corrects_gradients, needs_loss, evaluate"
    return peer


def clients_of(served: Served, number: int) -> list[Peer]:
    """Enrol clients that can evaluate, each with a visit."""
    peers = [able(served.enrol()) for _ in range(number)]
    for peer in peers:
        assert check_in(peer)["visit"] is not None
    return peers


def check_in(peer: Peer, wait_seconds: float = 0.0) -> dict[str, Any]:
    answer = peer.http.post("/v1/checkin", json={"wait_seconds": wait_seconds})
    assert answer.status_code == 200, answer.text
    return answer.json()


def work(peer: Peer) -> None:
    """Upload the update of the client's visit, or of a new one."""
    assert peer.put(check_in(peer)["visit"], body_of(ONES)).status_code == 200


def make_versions(peers: list[Peer], number: int) -> None:
    """Let clients upload; of the first ``number`` each makes a version."""
    for peer in peers[:number]:
        work(peer)


def answer(peer: Peer, version: int, examples: int = 4, **metrics: float) -> httpx.Response:
    etag = peer.http.get(f"/v1/models/{version}").headers.get("ETag", "0" * 64)
    result = {"model_sha256": etag.strip('"'), "examples": examples, "metrics": metrics}
    return peer.http.post(f"/v1/evaluations/{version}", json=result)


def asked(peers: list[Peer]) -> dict[int, int]:
    """Return the versions that idle clients are to evaluate, by client."""
    found = {number: check_in(peer)["evaluation"] for number, peer in enumerate(peers)}
    return {number: evaluation["version"] for number, evaluation in found.items() if evaluation is not None}


def finish_visits(peers: list[Peer]) -> None:
    for peer in peers:
        visit = check_in(peer)["visit"]
        if visit is not None:
            peer.http.post(f"/v1/visits/{visit['number']}/give-up").raise_for_status()


def status(served: Served) -> dict[str, Any]:
    return served.admin.http.get("/v1/status").json()


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "client_evaluations.jsonl").read_text().splitlines()]


class Waiting:
    """A check-in that waits in a thread."""

    def __init__(self, peer: Peer) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._answer = self._pool.submit(check_in, peer, 20.0)

    def __enter__(self) -> Callable[[], dict[str, Any]]:
        return lambda: self._answer.result(10)  # well before its end

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()
