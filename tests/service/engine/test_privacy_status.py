"""The privacy spent, in status, metrics and the command's lines."""

import re

import pytest
import torch

from offbeat.algorithms import FedBuff
from offbeat.coordinator import Coordinator
from offbeat.coordinator.participation_limits import Participation
from offbeat.service.engine.privacy_status import PrivacySettings, is_without_clients, privacy_status
from tests.offbeat_command import offbeat_output
from tests.service.conftest import LENGTH, PLAN, body_of, running

# ε of σ = 5 and δ = 1e-5 for 1 and 10 participations, from Balle and Wang's Theorem 8, by another program.
ONE_PARTICIPATION, TEN = 0.726, 2.594


def coordinator_of(*counts):
    coordinator = Coordinator(
        FedBuff(buffer_size=1),
        torch.zeros(1),
        clients=len(counts),
        local=PLAN,
        participation=Participation(len(counts)),
    )
    for client, count in enumerate(counts):
        coordinator.participation._counts[client] = count
    return coordinator


def status_of(server):
    return offbeat_output("server", "status", server.folder)


def test_epsilon_is_that_of_the_largest_and_the_median_count():
    status = privacy_status(PrivacySettings(5.0, 1e-5), coordinator_of(0, 1, 10), None, {})
    assert status.epsilon.largest == pytest.approx(TEN, abs=5e-4)
    assert status.epsilon.median == pytest.approx(ONE_PARTICIPATION, abs=5e-4)
    assert status.epsilon_replace_one.largest == pytest.approx(5.76, abs=5e-3)
    assert status.helper is None


def test_before_the_first_update_nothing_is_spent():
    status = privacy_status(PrivacySettings(5.0, 1e-5), coordinator_of(0, 0), None, {})
    assert (status.epsilon.largest, status.epsilon_replace_one.median) == (0.0, 0.0)


def test_without_noise_there_is_no_epsilon():
    status = privacy_status(PrivacySettings(0.0, 1e-5), coordinator_of(1, 1), None, {})
    assert (status.epsilon, status.epsilon_replace_one) == (None, None)


def test_a_run_is_without_clients_once_none_may_come_and_none_is_at_work():
    coordinator = coordinator_of(0, 0)
    coordinator.participation.limit = 1
    for client in range(2):
        coordinator.present(0.0, client)
    assert not is_without_clients(coordinator)
    for assignment in coordinator.assign(0.0):
        assert not is_without_clients(coordinator)
        report = {"examples": 1, "steps": 1, "normaliser": 1.0}
        coordinator.receive(1.0, assignment.client, assignment.visit, torch.zeros(1), **report)
    assert is_without_clients(coordinator)
    plain = Coordinator(FedBuff(), torch.zeros(1), clients=2, local=PLAN)
    assert not is_without_clients(plain)


def test_a_stuck_run_is_looked_through_once(tmp_path, monkeypatch):
    asked = []
    allows = Participation.allows
    monkeypatch.setattr(
        Participation, "allows", lambda self, client, algorithm: asked.append(client) or allows(self, client, algorithm)
    )
    settings = {"participation": Participation(3, limit=1), "privacy": PrivacySettings(5.0, 1e-5), "clients": 3}
    with running(tmp_path / "server", lambda: FedBuff(buffer_size=1, concurrency=3), **settings) as server:
        ready = lambda: server.peer(None).http.get("/readyz").text  # noqa: E731
        for _ in range(3):
            assert ready() == "ok\n"
            peer = server.enrol()
            assert peer.put(peer.check_in(), body_of(torch.ones(LENGTH))).status_code == 200
        assert ready() == "waits for a new run: no client may take part any more\n"
        asked.clear()
        for _ in range(5):
            assert ready() == "waits for a new run: no client may take part any more\n"
    assert asked == []


def test_metrics_and_command_show_what_was_spent(tmp_path):
    privacy = PrivacySettings(5.0, 1e-5)
    with running(tmp_path / "server", participation=Participation(5), privacy=privacy) as server:
        for _ in range(3):
            peer = server.enrol()
            assert peer.put(peer.check_in(), body_of(torch.ones(LENGTH))).status_code == 200
        text = server.admin.http.get("/metrics").text
        printed = status_of(server)
    lines = text.splitlines()
    assert 'offbeat_epsilon{adjacency="replace-one",clients="largest"} 1.' in text
    assert 'offbeat_epsilon{adjacency="zero-out",clients="median"} 0.72' in text
    for line in ("sums_opened 1.0", "sums_discarded 0.0", "sums_waiting 0.0", "suspended_clients 0.0", "helper_ok 1.0"):
        assert f"offbeat_{line}" in lines
    spent = re.search(r"^epsilon: largest ([\d.]+), median ([\d.]+) \(delta 1e-05\)$", printed, re.MULTILINE)
    assert spent is not None
    assert [float(value) for value in spent.groups()] == pytest.approx([ONE_PARTICIPATION] * 2, abs=5e-4)
    assert "epsilon, replace-one: largest 1." in printed
    assert "sums: 1 opened, 0 waiting, 0 discarded\nsuspended clients: 0\n" in printed
    assert "privacy" not in printed
    assert "helper" not in printed


def test_a_plain_run_shows_none_of_it(server):
    assert server.admin.http.get("/v1/status").json()["privacy"] is None
    assert "epsilon" not in server.admin.http.get("/metrics").text
    assert "epsilon" not in status_of(server)
