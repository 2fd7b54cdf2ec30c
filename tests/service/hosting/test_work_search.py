"""The search for work among runs: nobody starves, and no visit is open that its site does not know of."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx
import pytest
import torch

from tests.service.conftest import LENGTH
from tests.service.hosting.conftest import Host, Site, hosting
from tests.service.http_client import until


def open_visits(server: Host) -> dict[str, int]:
    return {name: run["at_work"] for name, run in server.runs().items()}


def upload(site: Site, run: str) -> None:
    visit = site.at(run).check_in()
    assert visit is not None
    assert site.at(run).send(visit, torch.ones(LENGTH))["counted"]


def test_all_of_many_waiting_sites_get_work_while_runs_begin_end_and_change(tmp_path):
    sites, runs = 60, 5
    with hosting(tmp_path / "server", connections_per_address=2000) as server:
        made = [server.enrol("", *(["gpu"] if number % 2 else [])) for number in range(sites)]
        with ThreadPoolExecutor(sites) as pool:
            found = [pool.submit(site.find_work, 60.0) for site in made]
            for number in range(runs):
                labels = ["gpu"] if number % 2 else []
                server.create(f"run-{number}", algorithm="fedbuff", clients=sites, labels=labels)
            at_work: dict[int, str] = {}
            # Each run has work for four at a time. A site that gets some does it, and asks no more.
            while len(at_work) < sites:
                done = [(site, each) for site, each in zip(made, found, strict=True) if each.done()]
                for site, each in done:
                    if site.number not in at_work:
                        at_work[site.number] = each.result()["run"]
                        assert at_work[site.number] is not None
                        upload(site, at_work[site.number])
                if len(at_work) == sites // 2:
                    server.admin.http.post(f"/v1/sites/{made[0].number}/labels", json={"labels": ["gpu"]})
                time.sleep(0.01)
        assert open_visits(server) == {f"run-{number}": 0 for number in range(runs)}
        assert [run["waiting"] for run in server.runs().values()] == runs * [0]
        assert sum(run["counted"] for run in server.runs().values()) == sites


def test_a_site_that_stops_waiting_leaves_no_visit(server, monkeypatch):
    for name in ("one", "two"):
        server.create(name, algorithm="one at a time")
    first, second = server.enrol(""), server.enrol("")
    assert {first.find_work()["run"], second.find_work()["run"]} == {"one", "two"}
    waiting = server.enrol("")
    with suppress(httpx.ReadTimeout):
        waiting.root.http.post("/v1/work", json={"wait_seconds": 60}, timeout=0.5)
    until(lambda: [run["waiting"] for run in server.runs().values()] == [0, 0])
    for site in (first, second):
        upload(site, site.find_work()["run"])
    assert open_visits(server) == {"one": 0, "two": 0}


def test_a_site_that_leaves_while_it_is_given_work_leaves_no_visit(server, monkeypatch):
    server.create("one", algorithm="one at a time")
    site = server.enrol("")
    engine = server.run("one").service.service.engine
    wait_until_durable, is_asked = engine.log_writer.wait_until_durable, []

    async def slow(**how):
        is_asked.append(engine.coordinator.visits.has_slot(0))
        if is_asked == [True]:
            await asyncio.sleep(30)  # until it is cancelled
        await wait_until_durable(**how)

    site.find_work(without=("one",))
    server.in_loop(lambda: monkeypatch.setattr(engine.log_writer, "wait_until_durable", slow))
    with suppress(httpx.ReadTimeout):
        site.root.http.post("/v1/work", json={"wait_seconds": 60}, timeout=0.5)
    until(lambda: open_visits(server) == {"one": 0})
    assert True in is_asked


def test_of_two_runs_that_give_work_at_once_one_keeps_its_place(server):
    for name in ("one", "two"):
        server.create(name, algorithm="one at a time")
    first, second, third = (server.enrol("") for _ in range(3))
    runs = {first.find_work()["run"]: first, second.find_work()["run"]: second}
    assert set(runs) == {"one", "two"}
    visits = {name: site.at(name).check_in() for name, site in runs.items()}
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(third.find_work, 30.0)
        until(lambda: [run["waiting"] for run in server.runs().values()] == [1, 1])

        def give_up_both() -> None:
            for name, site in runs.items():
                run = server.run(name)
                client = run.accounts.client_of(site.number)
                run.service.service.engine.coordinator.drop(0.0, client, visits[name]["number"])
                for assignment in run.service.service.engine.coordinator.assign(0.0):
                    run.service.service.engine.waiting.wake(assignment.client)

        server.in_loop(give_up_both)
        name = found.result(10)["run"]
    until(lambda: sum(open_visits(server).values()) == 1)
    assert open_visits(server)[name] == 1


def test_a_server_that_stops_answers_those_who_wait(tmp_path):
    with ThreadPoolExecutor(2) as pool:
        with hosting(tmp_path / "server") as server:
            server.create("one", algorithm="one at a time")
            site, other, stranger = server.enrol(""), server.enrol(""), server.enrol("")
            assert site.find_work()["run"] == "one"
            server.create("trusted", algorithm="fedasync", labels=["trusted"])
            found = [
                pool.submit(each.find_work, 60.0, without) for each, without in ((other, ()), (stranger, ("one",)))
            ]
            until(lambda: server.runs()["one"]["waiting"] == 1)
            stopping = time.monotonic()
            server.loop.call_soon_threadsafe(server.stop.set)
            answers = [each.result(30) for each in found]
            assert [answer["run"] for answer in answers] == [None, None]
        assert time.monotonic() - stopping < 60  # not as long as they would wait


def test_a_revoked_site_that_waits_is_not_admitted_to_another_run(server):
    site, other = server.enrol(""), server.enrol("")
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(site.find_work, 2.0)
        time.sleep(0.3)
        assert server.admin.http.delete(f"/v1/sites/{site.number}").status_code == 204
        server.create("later", algorithm="fedasync")
        assert found.result(10)["run"] is None
    assert other.find_work()["run"] == "later"
    assert server.runs()["later"]["enrolled"] == 1


def test_a_site_that_is_revoked_while_a_run_admits_it_does_not_take_part(server, monkeypatch):
    server.create("one", algorithm="fedasync")
    site = server.enrol("")
    log_writer = server.service.home.log_writer
    wait_until_durable = log_writer.wait_until_durable

    async def and_revoke(**how):
        monkeypatch.undo()
        await wait_until_durable(**how)
        await server.service.revoke(site.number)

    server.in_loop(lambda: monkeypatch.setattr(log_writer, "wait_until_durable", and_revoke))
    assert site.find_work()["run"] is None
    assert server.runs()["one"]["enrolled"] == 0


def test_a_run_that_fails_while_sites_wait_leaves_them_waiting_for_the_others(server):
    for name in ("good", "bad"):
        server.create(name, algorithm="one at a time")
    first, second, third = (server.enrol("") for _ in range(3))
    runs = {site.find_work()["run"]: site for site in (first, second)}
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(third.find_work, 30.0)
        until(lambda: [run["waiting"] for run in server.runs().values()] == [1, 1])
        server.in_loop(lambda: server.run("bad")._end.set(ValueError("planted")))
        until(lambda: server.runs()["bad"]["state"] == "failed")
        upload(runs["good"], "good")
        assert found.result(10)["run"] == "good"


def test_a_site_that_waits_gets_work_of_a_run_that_is_extended(server):
    server.create("busy", algorithm="one at a time")
    assert server.enrol("").find_work()["run"] == "busy"
    server.create("over", algorithm="fedasync", versions=1)
    site = server.enrol("")
    assert site.work() == "over"
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(site.find_work, 30.0)
        until(lambda: server.runs()["busy"]["waiting"] == 1)
        run = server.peer(server.admin.token, "over").http
        assert run.post("/v1/admin/extend", json={"versions": 3}).status_code == 200
        assert found.result(4)["run"] == "over"  # before the server looks by itself


@pytest.mark.parametrize(
    ("path", "body"), [("labels", {"labels": ["gpu"]}), ("rename", {"name": "ward 3"})], ids=["label", "name"]
)
def test_a_site_that_waits_gets_work_of_a_run_that_now_admits_it(server, path, body):
    server.create("busy", algorithm="one at a time")
    assert server.enrol("").find_work()["run"] == "busy"
    server.create("other", algorithm="fedasync", **({"labels": ["gpu"]} if path == "labels" else {"names": ["ward 3"]}))
    site = server.enrol("")
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(site.find_work, 20.0)
        until(lambda: server.runs()["busy"]["waiting"] == 1)
        assert server.admin.http.post(f"/v1/sites/{site.number}/{path}", json=body).status_code == 204
        assert found.result(10)["run"] == "other"
