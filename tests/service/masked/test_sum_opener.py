"""Sums are opened once, whenever the server is killed, and whatever the helper says."""

import shutil
import sqlite3
import time
from contextlib import closing

import numpy as np
import pytest
import torch
from offbeat_core.errors import OffbeatError
from offbeat_private.masks.envelope import parse

from offbeat.coordinator.sealed_sums import SealedSums
from offbeat.service.engine.server_checkpoint import CheckpointWriter
from offbeat.service.log.sql_log import SqlLog
from offbeat.service.masked.helper_protocol import HelperRefusedError
from tests.offbeat_command import offbeat_output
from tests.offbeat_private.helper.conftest import CLIENT_KEYS
from tests.service.conftest import LENGTH
from tests.service.http_client import until
from tests.service.masked.conftest import InProcessHelper, enrolled_helper, masked_server

ONE = torch.full((LENGTH,), 0.1)


def two_shares(server):
    """Seal the first sum; return its clients."""
    clients = [server.client(0), server.client(1)]
    clients[0].give(ONE)
    clients[1].give(-3 * ONE)
    return clients


def model_of(server):
    until(lambda: server.algorithm.version == 1)
    return server.algorithm.model.clone()


def test_shares_of_two_clients_become_a_version(server):
    first, second = server.client(0), server.client(1)
    visits = [first.check_in(), second.check_in()]
    assert visits[0]["privacy"] == {"terms": server.helper.terms.digest.hex()}
    assert first.send(visits[0], ONE) == {"counted": True, "staleness": 0, "new_version": False}
    second.send(visits[1], -3 * ONE)
    # 1/10 is not a multiple of the step, so each entry is rounded up or down.
    assert torch.allclose(model_of(server), ONE, atol=2 * server.helper.terms.step)
    assert first.check_in()["version"] == 1


def kill_before_the_helper_is_asked(server, copy, monkeypatch):
    server.helper.is_reachable = False
    two_shares(server)
    until(lambda: "cannot be reached" in server.status()["helper"])
    copy()
    server.helper.is_reachable = True


def kill_after_the_answer(server, copy, monkeypatch):
    server.helper.answered = lambda _, words: (copy(), words)[1]
    two_shares(server)


def kill_after_the_file(server, copy, monkeypatch):
    reveal = SealedSums.reveal

    def kill(self, now, opened):
        copy()
        return reveal(self, now, opened)

    monkeypatch.setattr(SealedSums, "reveal", kill)
    two_shares(server)
    model_of(server)
    monkeypatch.undo()


def kill_after_the_log(server, copy, monkeypatch):
    two_shares(server)
    model_of(server)
    server.served.admin.http.get("/v1/status")  # returns once the log is on disk
    copy()


@pytest.mark.parametrize("has_checkpoint", [False, True])
@pytest.mark.parametrize(
    "kill", [kill_before_the_helper_is_asked, kill_after_the_answer, kill_after_the_file, kill_after_the_log]
)
def test_a_kill_between_two_steps_changes_nothing(kill, has_checkpoint, helper, tmp_path, monkeypatch):
    copied = []

    def copy():
        if not copied:
            shutil.copytree(tmp_path / "server", tmp_path / "killed")
        copied.append(True)

    with masked_server(tmp_path / "server", helper, checkpoint_seconds=1e6) as server:
        if has_checkpoint:  # which holds masked vectors of a sum that is not sealed yet
            server.client(2).give(-ONE)
            server.served.checkpoint()
        kill(server, copy, monkeypatch)
        model = model_of(server)
    assert copied
    asked = helper.asked[0]
    helper.asked, helper.answered = [], lambda _, words: words
    helper.is_reachable = kill is not kill_after_the_log
    with masked_server(tmp_path / "killed", helper) as server:
        assert torch.equal(model_of(server), model)
        helper.is_reachable = True
        assert helper.asked == ([asked] if kill is not kill_after_the_log else [])
        until(lambda: server.status()["helper"] == "ok")
        assert server.status()["sums_opened"] == 1


def test_while_the_helper_is_away_clients_go_on_and_versions_wait(server):
    clients = [server.client(number) for number in range(4)]
    visits = [client.check_in() for client in clients]
    shares = [client.share(visit, ONE) for client, visit in zip(clients, visits, strict=True)]
    server.helper.is_reachable = False
    for client, visit, share in zip(clients, visits, shares, strict=True):
        assert client.put(visit, share).json()["receipt"]["counted"]
    until(lambda: "cannot be reached" in server.status()["helper"])
    ready = server.served.admin.http.get("/readyz").raise_for_status()
    assert ready.text == "no new versions, since the helper cannot open sums: see offbeat server status\n"
    assert (server.status()["sums_waiting"], server.algorithm.version) == (2, 0)
    printed = offbeat_output("server", "status", server.served.folder)
    assert "helper: the helper cannot be reached\n" in printed
    assert "sums: 0 opened, 2 waiting, 0 discarded\n" in printed
    assert "epsilon: unbounded, without noise\n" in printed  # masks alone
    assert "offbeat_helper_ok 0.0" in server.served.admin.http.get("/metrics").text
    assert clients[0].check_in() is None  # its sum is not opened yet
    server.helper.is_reachable = True
    until(lambda: server.algorithm.version == 2)
    assert [number for number, _ in server.helper.asked] == [1, 2]
    assert clients[0].check_in()["version"] == 2


def test_a_restart_with_several_sealed_sums_opens_them_in_order(helper, tmp_path):
    with masked_server(tmp_path / "server", helper, checkpoint_seconds=1e6) as server:
        clients = [server.client(number) for number in range(4)]
        visits = [client.check_in() for client in clients]
        shares = [client.share(visit, ONE) for client, visit in zip(clients, visits, strict=True)]
        helper.is_reachable = False
        for client, visit, share in zip(clients, visits, shares, strict=True):
            client.put(visit, share)
    # The server has ended in order: its last checkpoint holds both sealed sums.
    helper.is_reachable = True
    with masked_server(tmp_path / "server", helper) as server:
        until(lambda: server.algorithm.version == 2)
        assert torch.allclose(server.algorithm.model, -2 * ONE, atol=1e-4)


def test_a_sum_out_of_range_is_discarded_and_its_clients_come_apart(helper, tmp_path):
    noise = np.random.default_rng(1).integers(2**32, size=LENGTH, dtype=np.uint32)
    with masked_server(tmp_path / "server", helper, checkpoint_seconds=1e6) as server:
        helper.answered = lambda number, words: words + noise if number == 1 else words
        clients = two_shares(server)
        until(lambda: server.status()["sums_discarded"] == 1)
        assert (server.algorithm.version, server.status()["suspended_clients"]) == (0, 0)
        assert [client.check_in() for client in clients] == [None, None]  # not from the same version again
        others = [server.client(2), server.client(3)]
        for client in others:
            client.give(ONE)
        until(lambda: server.algorithm.version == 1)
        assert [number for number, _ in helper.asked] == [1, 2]
        model = server.algorithm.model.clone()
        server.served.admin.http.get("/v1/status")
        shutil.copytree(tmp_path / "server", tmp_path / "killed")
    helper.is_reachable = False
    with masked_server(tmp_path / "killed", helper) as server:
        assert torch.equal(server.algorithm.model, model)
        assert (server.status()["sums_opened"], server.status()["sums_discarded"]) == (1, 1)
        assert list((tmp_path / "killed" / "updates").glob("sum-1-*")) == []


def test_a_run_that_a_wrong_seed_has_left_without_clients_says_so(helper, tmp_path):
    noise = np.random.default_rng(1).integers(2**32, size=LENGTH, dtype=np.uint32)
    helper.answered = lambda number, words: words + noise
    with masked_server(tmp_path / "server", helper, clients=3) as server:
        last = server.client(2)
        two_shares(server)
        until(lambda: server.status()["sums_discarded"] == 1)
        waits_for = lambda: server.served.admin.http.get("/v1/status").json()["waits_for"]  # noqa: E731
        visit = last.check_in()
        assert waits_for() is None
        last.send(visit, ONE)
        until(lambda: waits_for() is not None)
        assert waits_for() == "a new run: no client may take part any more"
        assert "waits for a new run" in server.served.admin.http.get("/readyz").text
        printed = offbeat_output("server", "status", server.served.folder)
        assert "waits for: a new run: no client may take part any more\n" in printed


def test_a_client_that_the_helper_refuses_is_withdrawn(tmp_path):
    with enrolled_helper(tmp_path / "helper", clients=3) as helper:
        with masked_server(tmp_path / "server", helper, checkpoint_seconds=1e6) as server:
            stranger = server.client(5)  # whose key is not on the roster
            stranger.give(100 * ONE)
            server.client(0).give(ONE)
            until(lambda: server.served.service.engine.coordinator.algorithm.buffer.count == 1)
            server.client(1).give(-3 * ONE)
            model = model_of(server)
            assert torch.allclose(model, ONE, atol=1e-4)
            server.served.admin.http.get("/v1/status")
            shutil.copytree(tmp_path / "server", tmp_path / "killed")
        helper.is_reachable = False
        with masked_server(tmp_path / "killed", helper) as server:
            assert torch.equal(model_of(server), model)


@pytest.mark.parametrize(("kind", "comes_again"), [("epsilon-spent", False), ("wrong-epoch", True)])
def test_a_client_that_has_spent_its_epsilon_in_earlier_runs_gets_no_more_work(kind, comes_again, server, monkeypatch):
    key, opened = CLIENT_KEYS[0], server.helper.open

    def refuse(number, records):
        if any(parse(record).binding.client == key for record in records):
            raise HelperRefusedError(kind, "drop it", key)
        return opened(number, records)

    monkeypatch.setattr(server.helper, "open", refuse)
    spent, *others = server.client(0), server.client(1), server.client(2)
    for client in (spent, *others):
        client.give(ONE)
    until(lambda: server.algorithm.version == 1)
    assert (spent.check_in() is not None) is comes_again
    assert others[0].check_in() is not None


@pytest.mark.parametrize("kind", ["rolled-back", "wrong-number", "other-batch", "too-many-clients"])
def test_after_a_refusal_that_names_nobody_the_run_waits(kind, server, monkeypatch):
    def refuse(number, records):
        raise HelperRefusedError(kind, "do this", None)

    monkeypatch.setattr(server.helper, "open", refuse)
    two_shares(server)
    until(lambda: server.status()["helper"].startswith(f"the helper refuses: do this ({kind})"))
    assert server.algorithm.version == 0
    assert server.client(2).check_in() is not None
    monkeypatch.undo()
    until(lambda: server.algorithm.version == 1)
    until(lambda: server.status()["helper"] == "ok")


def three_sums(folder, helper, yesterday, copied):
    """Open three sums of four clients; ``copied`` is copied to ``yesterday`` after the first."""
    with masked_server(folder, helper, checkpoint_seconds=1e6) as server:
        clients = [server.client(number) for number in range(4)]
        for version, pair in enumerate([clients[:2], clients[2:], clients[:2]], 1):
            for client in pair:
                client.give(ONE)
            until(lambda version=version: server.algorithm.version == version)
            if version == 1:
                server.served.admin.http.get("/v1/status")
                shutil.copytree(copied, yesterday)
    return clients


def test_a_server_restored_from_an_old_copy_says_what_to_do(helper, tmp_path):
    clients = three_sums(tmp_path / "server", helper, tmp_path / "yesterday", tmp_path / "server")
    asked = len(helper.asked)
    helper.is_reachable = False
    with masked_server(tmp_path / "yesterday", helper) as server:
        helper.is_reachable = True
        until(lambda: "server's folder is an old copy" in server.status()["helper"])
        said = server.status()["helper"]
        assert said.startswith("the helper has opened 3 sums and this server 1: ")
        assert "service.initial_model" in said
        assert "\n" not in said
        for client in clients[2:]:  # the same visits again, with other shares
            server.again(client).give(ONE)
        until(lambda: server.status()["sums_waiting"] == 1)
        time.sleep(0.2)
        assert (len(helper.asked), server.algorithm.version) == (asked, 1)  # two more are missing
        for client in clients[:2]:
            server.again(client).give(ONE)
        until(lambda: len(helper.asked) > asked)
        until(lambda: "server's folder is an old copy" in server.status()["helper"])
        assert server.status()["helper"].startswith("the helper refuses: batch 2 was opened with other records")
        assert server.algorithm.version == 1


def test_a_server_restored_from_an_old_copy_fetches_the_answers_to_sums_that_it_had_sealed(helper, tmp_path):
    with masked_server(tmp_path / "server", helper, checkpoint_seconds=1e6) as server:
        helper.answered = lambda _, words: (shutil.copytree(tmp_path / "server", tmp_path / "yesterday"), words)[1]
        two_shares(server)
        model = model_of(server)
    helper.answered = lambda _, words: words
    with masked_server(tmp_path / "yesterday", helper) as server:
        assert torch.equal(model_of(server), model)
        assert server.status()["helper"] == "ok"


def test_a_helper_restored_from_an_old_copy_is_reported_before_it_is_asked(tmp_path):
    yesterday = tmp_path / "yesterday"
    with enrolled_helper(tmp_path / "helper") as helper:
        clients = three_sums(tmp_path / "server", helper, yesterday, tmp_path / "helper")
    with closing(InProcessHelper(yesterday)) as old:
        old.is_reachable = False
        with masked_server(tmp_path / "server", old) as server:
            old.is_reachable = True
            until(lambda: "helper's folder is an old copy" in server.status()["helper"])
            assert server.status()["helper"].startswith("the helper has opened 1 sums and this server 3: ")
            for client in clients[2:]:
                server.again(client).give(ONE)
            time.sleep(0.2)
            assert (server.status()["sums_waiting"], old.asked) == (1, [])


def test_of_two_servers_with_one_token_one_opens_sums(helper, tmp_path):
    with masked_server(tmp_path / "first", helper) as first, masked_server(tmp_path / "second", helper) as second:
        two_shares(first)
        model_of(first)
        clients = [second.client(2), second.client(3)]
        for client in clients:
            client.give(ONE)
        until(lambda: "another server uses this helper" in second.status()["helper"])
        assert (first.algorithm.version, second.algorithm.version) == (1, 0)
        assert [number for number, _ in helper.asked][:1] == [1]


def test_a_named_client_that_is_not_in_the_sum_is_not_withdrawn(server, monkeypatch):
    def refuse(number, records):
        raise HelperRefusedError("too-soon", "keep it", bytes(32))

    monkeypatch.setattr(server.helper, "open", refuse)
    two_shares(server)
    until(lambda: "keep it" in server.status()["helper"])
    assert server.algorithm.sealed[0].count == 2


def test_the_helper_of_another_run_is_reported(server, tmp_path):
    with enrolled_helper(tmp_path / "other") as other:
        facts = other.facts()
    server.helper.facts = lambda: facts
    two_shares(server)
    until(lambda: "the helper serves run" in server.status()["helper"])


def test_masked_vectors_and_opened_sums_are_deleted_once_a_checkpoint_covers_them(helper, tmp_path):
    updates = tmp_path / "server" / "updates"
    with masked_server(tmp_path / "server", helper, checkpoint_seconds=1e6) as server:
        helper.is_reachable = False
        clients = [server.client(0), server.client(1)]
        helper.is_reachable = True
        visits = [client.check_in() for client in clients]
        shares = [client.share(visit, ONE) for client, visit in zip(clients, visits, strict=True)]
        helper.is_reachable = False
        for client, visit, share in zip(clients, visits, shares, strict=True):
            client.put(visit, share)
        server.served.checkpoint()
        helper.is_reachable = True
        model_of(server)
        assert [path.name.rpartition("-")[0] for path in updates.iterdir()] == ["sum-1"]
        server.served.checkpoint()
        assert list(updates.iterdir()) == []


def test_the_helper_is_asked_once_the_log_of_the_sum_is_on_disk(server, monkeypatch):
    append, receives = SqlLog._append, []

    def slowly(self, rows, after):
        time.sleep(0.2)
        append(self, rows, after)

    def ask(number, records):
        with closing(sqlite3.connect(server.served.folder / "offbeat.sqlite")) as database:
            receives.extend(database.execute("SELECT count(*) FROM log WHERE name = 'receive'").fetchone())
        return opened(number, records)

    opened = server.helper.open
    monkeypatch.setattr(SqlLog, "_append", slowly)
    monkeypatch.setattr(server.helper, "open", ask)
    two_shares(server)
    model_of(server)
    assert receives == [2]


def test_a_server_that_starts_without_its_helper_gives_out_work_and_takes_shares_later(helper, tmp_path):
    helper.is_reachable = False
    with masked_server(tmp_path / "server", helper) as server:
        client = server.client(0)
        visit = client.check_in()
        answer = client.peer.http.get(f"/v1/uploads/{visit['number']}")
        assert (answer.status_code, answer.json()["kind"], answer.headers["retry-after"]) == (503, "busy", "5")
        helper.is_reachable = True
        until(lambda: server.status()["helper"] == "ok")
        assert client.send(visit, ONE)["counted"]


def test_a_share_that_comes_too_late_is_acknowledged_and_not_stored(helper, tmp_path):
    with masked_server(tmp_path / "server", helper, max_staleness=0, checkpoint_seconds=1e6) as server:
        late = server.client(2)
        visit = late.check_in()
        share = late.share(visit, ONE)
        two_shares(server)
        model_of(server)
        receipt = late.put(visit, share).json()["receipt"]
        assert receipt == {"counted": False, "staleness": 1, "new_version": False}
        assert late.put(visit, share).json()["receipt"] == receipt
        shutil.copytree(tmp_path / "server", tmp_path / "killed")
    with masked_server(tmp_path / "killed", helper, max_staleness=0) as server:
        assert server.again(late).put(visit, share).json()["receipt"] == receipt


def test_a_kill_before_the_checkpoint_of_a_start_loses_no_opened_sum(helper, tmp_path, monkeypatch):
    with masked_server(tmp_path / "server", helper, checkpoint_seconds=1e6) as server:
        kill_after_the_log(server, lambda: shutil.copytree(tmp_path / "server", tmp_path / "killed"), monkeypatch)
        model = model_of(server)

    async def fail(self):
        raise OffbeatError("killed")

    monkeypatch.setattr(CheckpointWriter, "write", fail)
    with pytest.raises(OffbeatError, match="killed"), masked_server(tmp_path / "killed", helper):
        pytest.fail("it started")
    monkeypatch.undo()
    helper.is_reachable = False
    with masked_server(tmp_path / "killed", helper) as server:
        assert torch.equal(server.algorithm.model, model)
