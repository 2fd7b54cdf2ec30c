"""Backups of a server of several runs that is at work, and servers that start from them."""

import threading
from pathlib import Path

import pytest

from offbeat.service.audit.verification import verify
from offbeat.service.store import backup
from tests.offbeat_command import offbeat_output
from tests.service.hosting.conftest import Site, hosting


def test_all_runs_resume_from_a_backup_that_was_made_while_they_were_at_work(tmp_path: Path) -> None:
    stop, problems = threading.Event(), list[BaseException]()

    def keep_working(site: Site) -> None:
        try:
            while not stop.is_set():
                site.work()
        except BaseException as error:
            problems.append(error)

    with hosting(tmp_path / "server") as server:
        for name in ("one", "two"):
            server.create(name, algorithm="fedasync", clients=10)
        server.create("over", algorithm="fedasync", versions=1, names=["a"])
        sites = [server.enrol(name) for name in ("a", "b")]
        assert {sites[0].work() for _ in range(3)} == {"one", "two", "over"}
        before = server.runs()
        workers = [threading.Thread(target=keep_working, args=(site,)) for site in sites]
        for worker in workers:
            worker.start()
        assert "3 runs" in offbeat_output("server", "backup", tmp_path / "server", tmp_path / "copy")
        stop.set()
        for worker in workers:
            worker.join()
        assert problems == []
        after = server.runs()
    with hosting(tmp_path / "copy") as server:
        for name, run in server.runs().items():
            assert before[name]["counted"] <= run["counted"] <= after[name]["counted"]
        again = [site.at_server(server) for site in sites]
        assert {again[0].work() for _ in range(2)} == {again[1].work() for _ in range(2)} == {"one", "two"}
        assert again[0].at("over").http.post("/v1/checkin", json={}).json()["finished"]
    verify(tmp_path / "copy")


def test_no_site_of_a_backup_is_taken_for_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    back_up = backup.back_up
    with hosting(tmp_path / "server") as server:
        for name in ("one", "two"):
            server.create(name, algorithm="fedasync", clients=10)

        def and_enrol(run: Path, target: Path) -> int:
            assert server.enrol(f"with {run.name}").work() is not None
            new = server.enrol(f"also with {run.name}")
            assert {new.work() for _ in range(2)} == {"one", "two"}
            return back_up(run, target)

        monkeypatch.setattr(backup, "back_up", and_enrol)
        backup.back_up_host(tmp_path / "server", tmp_path / "copy")
    with hosting(tmp_path / "copy") as server:
        for number in range(3):
            assert server.enrol(f"new {number}").find_work()["run"] is not None
        names = {site["site"]: site["name"] for site in server.admin.http.get("/v1/sites").json()["sites"]}
        assert len({*names.values()}) == len(names) == 7
        for run in ("one", "two"):
            for client in server.run(run).accounts.sites.values():
                site = int(client.token.removeprefix("site-"))
                assert names[site] == client.name


def test_a_run_that_began_during_a_backup_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    back_up = backup.back_up
    with hosting(tmp_path / "server") as server:
        server.create("one", algorithm="fedasync")
        site = server.enrol("a")

        def and_create(run: Path, target: Path) -> int:
            done = back_up(run, target)
            server.create("later", algorithm="fedasync")
            assert {site.work() for _ in range(2)} == {"one", "later"}
            return done

        monkeypatch.setattr(backup, "back_up", and_create)
        backup.back_up_host(tmp_path / "server", tmp_path / "copy")
    with hosting(tmp_path / "copy") as server:
        assert {name: run["counted"] for name, run in server.runs().items()} == {"one": 0, "later": 0}
        assert {site.at_server(server).work() for _ in range(2)} == {"one", "later"}
