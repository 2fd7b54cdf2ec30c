"""Declared examples: durable, checked with each update, and what clients weigh where an algorithm averages over all."""

import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial

import pytest
import torch

from offbeat.algorithms import AsyncCommSGD, FedLaAvg
from offbeat.algorithms.components.schedules.patterns import round_robin
from offbeat.service.accounts.declared_examples import DeclaredExamples, within_share
from offbeat.service.accounts.registry import Site
from offbeat.service.store.backup import back_up
from tests.offbeat_command import offbeat_output
from tests.service.conftest import LENGTH, running
from tests.service.http_client import kind_of, until

ONES = torch.ones(LENGTH)
EXAMPLES = (10, 20, 50)


def weighing(folder, make=lambda: FedLaAvg(cohort=3), **settings):
    return running(folder, make, clients=3, waits_for_examples=True, **settings)


def is_weighted_mean(model):
    """Return whether the model is that of three clients' updates 1, 2, 3 to a model of zeros."""
    return model.tolist() == pytest.approx([-(10 * 1 + 20 * 2 + 50 * 3) / 80] * LENGTH, abs=1e-6)


def state_of(server):
    return server.admin.http.get("/readyz").raise_for_status().text


def put_header(peer, visit, examples):
    """Send the header of an update, without its body."""
    header = json.dumps(peer.head(visit, b"x", examples=examples))
    return peer.http.put(f"/v1/uploads/{visit['number']}", content=b"", headers={"Offbeat-Update": header})


def test_all_examples_are_known_once_every_client_has_declared_or_is_revoked(refused):
    sites = {client: Site("", 0.0, "", examples=declared) for client, declared in enumerate([None, 10])}
    examples = DeclaredExamples(sites, 3, max_examples=50)
    assert (examples.is_known(0), examples.is_known(1)) == (False, True)
    assert (examples.missing(), examples.all()) == (2, None)
    sites[2] = Site("", 0.0, "", examples=50)
    assert (examples.missing(), examples.all()) == (1, None)
    sites[0].revoked = 1.0
    assert (examples.missing(), examples.all()) == (0, [0, 10, 50])
    for client in (1, 2):
        sites[client].examples = 0
    assert examples.all() is None  # nobody would weigh anything


def test_examples_are_those_declared_before_and_at_most_the_largest_number(refused):
    sites = {client: Site("", 0.0, "", examples=declared) for client, declared in enumerate([10, None])}
    examples = DeclaredExamples(sites, 2, max_examples=50)
    examples.check(0, 10)
    examples.check(1, 50)
    assert refused(examples.check, 0, 11) == "wrong-examples"
    assert refused(examples.check, 1, 51) == "too-many-examples"
    DeclaredExamples({}, 2, None).check_maximum(10**9)


@pytest.mark.parametrize(
    ("examples", "max_share", "weights"),
    [
        ([10, 20, 50], 0.5, [10, 20, 30]),
        ([10, 20, 50], 0.6, [10, 20, 45]),
        ([10, 20, 30], 0.5, [10, 20, 30]),
        ([10, 20, 2**31 - 1], 1.0, [10, 20, 2**31 - 1]),
        ([10, 2**31 - 1], 0.5, [10, 2**31 - 1]),
        ([0, 10, 50, 0], 0.5, [0, 10, 50, 0]),
    ],
)
def test_no_client_has_more_than_its_share_of_the_objective(examples, max_share, weights):
    assert within_share(examples, max_share) == weights


def test_a_run_waits_for_all_clients_and_weighs_them_by_their_examples(tmp_path):
    with weighing(tmp_path / "server") as server:
        one, two = (server.enrol(examples=examples) for examples in EXAMPLES[:2])
        assert state_of(server) == "waits for 1 of 3 clients to enrol or declare examples\n"
        assert server.admin.http.get("/v1/status").json()["waits_for"] == "1 of 3 clients to enrol or declare examples"
        shown = offbeat_output("server", "status", tmp_path / "server")
        assert "waits for: 1 of 3 clients to enrol or declare examples\n" in shown
        assert one.check_in() is None
        with ThreadPoolExecutor(2) as pool:
            waits = [pool.submit(peer.check_in, 20.0) for peer in (one, two)]
            until(lambda: len(server.service.engine.waiting) == 2)
            three = server.enrol(examples=EXAMPLES[2])
            visits = [*(wait.result(10) for wait in waits), three.check_in()]
        assert state_of(server) == "ok\n"
        for number, (peer, visit) in enumerate(zip((one, two, three), visits, strict=True)):
            peer.send(visit, (number + 1.0) * ONES, examples=EXAMPLES[number])
        assert is_weighted_mean(server.service.engine.coordinator.algorithm.model)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_the_weights_are_the_same_after_a_restart(checkpoint, tmp_path):
    with weighing(tmp_path / "server") as server:
        peers = [server.enrol(examples=examples) for examples in EXAMPLES]
        visits = [peer.check_in() for peer in peers]
        assert peers[0].send(visits[0], ONES, examples=EXAMPLES[0])["counted"]
        if checkpoint:
            server.checkpoint()
        # As a kill leaves it: without the checkpoint that the server makes when it ends.
        back_up(tmp_path / "server", tmp_path / "copy")
    with weighing(tmp_path / "copy") as server:
        assert state_of(server) == "ok\n"
        for number in (1, 2):
            peer = server.peer(peers[number].token)
            assert peer.send(visits[number], (number + 1.0) * ONES, examples=EXAMPLES[number])["counted"]
        assert is_weighted_mean(server.service.engine.coordinator.algorithm.model)


def test_a_server_that_was_killed_between_the_last_enrolment_and_the_start_of_the_run_starts_it(tmp_path):
    with weighing(tmp_path / "server", max_share=0.5) as server:
        first, _ = (server.enrol(examples=examples) for examples in EXAMPLES[:2])
    with closing(sqlite3.connect(tmp_path / "server" / "offbeat.sqlite")) as database, database:
        (last,) = database.execute("SELECT arguments FROM log WHERE name = 'enrol' ORDER BY number DESC").fetchone()
        third = json.dumps(json.loads(last) | {"client": 2, "token": "x", "examples": 50})
        columns = "INSERT INTO log (run, number, epoch, owner, name, arguments)"
        row = "SELECT run, max(number) + 1, 1, 'accounts', 'enrol', ? FROM log"
        database.execute(f"{columns} {row}", (third,))
    with weighing(tmp_path / "server", max_share=0.5) as server:
        assert state_of(server) == "ok\n"
        shares = server.service.engine.coordinator.algorithm.shares
        assert [shares[client] for client in range(3)] == [10 / 60, 20 / 60, 30 / 60]
        assert server.peer(first.token).check_in() is not None


def test_a_period_begins_no_round_before_all_have_enrolled(tmp_path):
    make = partial(AsyncCommSGD, pattern=round_robin(k=3, every=1), period=0.05)
    with weighing(tmp_path / "server", make) as server:
        first = server.enrol(examples=10)
        assert first.check_in(0.3) is None
        assert server.service.engine.coordinator.algorithm.version == 0
        assert not server.service.engine.coordinator.statistics.assigned
        for examples in EXAMPLES[1:]:
            server.enrol(examples=examples)
        assert first.check_in(5.0) is not None


def test_a_client_may_declare_after_it_has_enrolled_and_a_revoked_one_is_not_waited_for(tmp_path):
    with weighing(tmp_path / "server") as server:
        peers = [server.enrol() for _ in range(3)]
        answer = peers[0].http.post("/v1/checkin", json={})
        assert kind_of(answer, 422) == "no-examples"
        assert "POST /v1/examples" in answer.json()["detail"]
        assert state_of(server) == "waits for 3 of 3 clients to enrol or declare examples\n"
        for peer in peers[:2]:
            answer = peer.http.post("/v1/examples", json={"examples": 10})
            assert (answer.status_code, answer.json()) == (200, {"examples": 10})
        assert kind_of(peers[0].http.post("/v1/examples", json={"examples": 0}), 400) == "malformed-request"
        assert server.admin.http.delete("/v1/clients/2").status_code == 204
        assert peers[0].check_in(5.0) is not None


def test_an_update_with_other_examples_than_declared_is_refused_before_its_body(tmp_path):
    with running(tmp_path / "server", max_examples=100) as server:
        peer = server.enrol()
        visit = peer.check_in()
        assert kind_of(put_header(peer, visit, 101), 422) == "too-many-examples"
        assert peer.send(visit, ONES, examples=12)["counted"]  # which declares them
        visit = peer.check_in()
        answer = put_header(peer, visit, 10)
        assert kind_of(answer, 422) == "wrong-examples"
        assert answer.json()["detail"].startswith("the client has declared 12 examples, not 10: ")
        assert server.service.engine.coordinator.statistics.counted == 1
        assert peer.send(visit, ONES, examples=12)["counted"]
