"""A kill after any append to any log of a server of several runs: all that was acknowledged is there.

``OFFBEAT_SERVER_KILLS`` says after how many of them; ``make torture`` takes all.
"""

import os
import random
import shutil
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from offbeat.service.audit.verification import verify
from offbeat.service.log.log import Row
from offbeat.service.log.sql_log import SqlLog
from tests.service.hosting.conftest import Host, Site, hosting
from tests.service.http_client import kind_of

KILLS = int(os.environ.get("OFFBEAT_SERVER_KILLS", "8"))
_HOME_SECONDS = 0.03  # that the server's own log takes longer: a run that does not wait for it is found


@dataclass
class World:
    """The content that a server must hold after what it has acknowledged."""

    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    sites: list[dict[str, Any]] = field(default_factory=list)


class Kills:
    """Copies a folder after each append, as a kill would leave it, with the number of requests answered before."""

    def __init__(self, folder: Path, copies: Path) -> None:
        self.answered = 0
        self.copies: list[tuple[int, Path]] = []
        self._folder = folder
        self._copies = copies
        self._lock = threading.Lock()

    @contextmanager
    def after_each_append(self, monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
        append = SqlLog._append

        def appended(log: SqlLog, rows: Sequence[Row], after: tuple[int, int]) -> None:
            if all(row.owner in ("home", "accounts", "audit") for row in rows):
                time.sleep(_HOME_SECONDS)
            with self._lock:
                append(log, rows, after)
                target = self._copies / str(len(self.copies))
                shutil.copytree(self._folder, target, ignore=shutil.ignore_patterns("reserve", "*.lock", "*-shm"))
                self.copies.append((self.answered, target))

        with monkeypatch.context() as patch:
            patch.setattr(SqlLog, "_append", appended)
            yield


def script(server: Host) -> Generator[Callable[[World], None]]:
    """Make requests, one after the other; yield the change that each makes once it is answered."""
    sites: list[Site] = []

    def create(name: str, **settings: Any) -> Callable[[World], None]:
        server.create(name, clients=10, **settings)
        new = {"counted": 0, "stop_versions": settings.get("versions"), "is_over": False}
        return lambda world: world.runs.update({name: {**new}})

    def enrol(name: str, *labels: str) -> Callable[[World], None]:
        sites.append(server.enrol(name, *labels))
        new = {"name": name, "labels": sorted(labels), "is_revoked": False, "token": sites[-1].token}
        return lambda world: world.sites.append({**new})

    def work(site: int) -> Callable[[World], None]:
        run = sites[site].work()
        assert run is not None

        def change(world: World) -> None:
            world.runs[run]["counted"] += 1
            if world.runs[run]["counted"] == world.runs[run]["stop_versions"]:
                world.runs[run]["is_over"] = True

        return change

    def post(path: str, body: Any, change: Callable[[World], None]) -> Callable[[World], None]:
        assert server.admin.http.post(path, json=body).is_success
        return change

    yield create("one", algorithm="fedasync", versions=3)
    yield create("gpu", algorithm="one at a time", labels=["gpu"])
    yield enrol("a", "gpu")
    yield enrol("b")
    yield work(0)
    yield work(1)
    yield work(0)
    labels = {"labels": ["eu", "gpu"]}
    yield post("/v1/sites/1/labels", labels, lambda world: world.sites[1].update(labels))
    yield work(1)
    yield post("/v1/sites/0/rename", {"name": "A"}, lambda world: world.sites[0].update(name="A"))
    assert server.admin.http.delete("/v1/sites/0").is_success
    yield lambda world: world.sites[0].update(is_revoked=True)
    yield work(1)
    extended = {"stop_versions": 9, "is_over": False}
    yield post("/runs/one/v1/admin/extend", {"versions": 9}, lambda world: world.runs["one"].update(extended))
    yield enrol("c", "gpu")
    yield work(2)
    yield post("/runs/gpu/v1/admin/end", {}, lambda world: world.runs["gpu"].update(is_over=True))
    yield create("later", algorithm="fedbuff")


def state_of(server: Host, tokens: Sequence[str]) -> World:
    """Return what the server holds."""
    runs = server.runs()
    for name in runs:
        server.peer(server.admin.token, name).http.get("/v1/status")  # which opens it
    runs = server.runs()
    sites = server.admin.http.get("/v1/sites").json()["sites"]
    return World(
        {
            name: {
                "counted": run["counted"],
                "stop_versions": None if run["state"] == "over" and name == "gpu" else run["stop_versions"],
                "is_over": run["state"] == "over",
            }
            for name, run in runs.items()
        },
        [
            {"name": site["name"], "labels": site["labels"], "is_revoked": site["revoked"] is not None, "token": token}
            for site, token in zip(sites, tokens, strict=False)
        ],
    )


def worlds(changes: Sequence[Callable[[World], None]]) -> list[World]:
    """Return what the server holds after so many changes, by number."""
    found: list[World] = []
    for number in range(len(changes) + 1):
        found.append(World())
        for change in changes[:number]:
            change(found[-1])
    return found


def check(folder: Path, before: World, after: World, tokens: Sequence[str]) -> None:
    """Check a server that starts from a copy: all that was answered is there, and at most the next change."""
    with hosting(folder) as server:
        now = state_of(server, tokens)
        assert {path.name for path in (folder / "runs").iterdir()} <= {*now.runs}  # each run is in the server's log
        assert {*before.runs} <= {*now.runs} <= {*after.runs}
        for name, run in now.runs.items():
            assert run in (before.runs.get(name, after.runs[name]), after.runs[name]), name
        assert len(before.sites) <= len(now.sites) <= len(after.sites)
        for number, site in enumerate(now.sites):
            assert site in (*before.sites[number : number + 1], after.sites[number]), number
        check_sites(server, now)
        # No number is given out twice, and the runs go on.
        new = server.enrol("new", "gpu")
        assert new.number == len(now.sites)
        at_work = {name for name, run in now.runs.items() if not run["is_over"]}
        assert {new.work() for _ in range(2 * len(at_work))} == at_work or not at_work
        for name, run in server.runs().items():
            assert run["counted"] >= now.runs[name]["counted"] + (name in at_work)
    verify(folder)


def check_sites(server: Host, now: World) -> None:
    """Check that the server knows which sites its runs have, and that revoked ones have ended in each."""
    listed = server.admin.http.get("/v1/sites").json()["sites"]
    for name in now.runs:
        clients = server.peer(server.admin.token, name).http.get("/v1/admin/clients").json()["clients"]
        for client in clients:
            (site,) = [site for site in listed if client["name"].lower() == site["name"].lower()]
            assert name in site["runs"]
            assert (client["revoked"] is None) is (site["revoked"] is None)
    for number, site in enumerate(now.sites):
        peer = Site(server, {"has_runs": True, "client": number, "token": site["token"]})
        answer = peer.root.http.post("/v1/work", json={})
        if site["is_revoked"]:
            assert kind_of(answer, 401) == "revoked-token"
        else:
            assert answer.status_code == 200
            run = answer.json()["run"]
            if run is not None:  # it goes on, but the new site is to have work in each run
                visit = peer.at(run).check_in()
                assert visit is not None
                assert peer.at(run).http.post(f"/v1/visits/{visit['number']}/give-up").status_code == 204


def test_a_kill_after_any_append_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kills, changes = Kills(tmp_path / "server", tmp_path / "copies"), list[Callable[[World], None]]()
    (tmp_path / "copies").mkdir()
    with hosting(tmp_path / "server") as server, kills.after_each_append(monkeypatch):
        for change in script(server):
            changes.append(change)
            kills.answered += 1
    after = worlds(changes)
    after.append(after[-1])
    tokens = [site["token"] for site in after[-1].sites]
    seed = random.SystemRandom().randrange(2**32)
    print(f"random numbers from seed {seed}, {len(kills.copies)} appends")
    chosen = random.Random(seed).sample(kills.copies, min(KILLS, len(kills.copies)))
    for answered, copy in chosen:
        print(answered, copy)
        check(copy, after[answered], after[answered + 1], tokens)
