"""ε of a client over several runs: what it has spent, and its limit."""

import json
import math
from statistics import NormalDist

import pytest
import torch
from offbeat_core.errors import OffbeatError

from offbeat.coordinator.participation_limits import Participation
from offbeat.service.engine.privacy_status import Budget, PrivacySettings
from offbeat.service.server.spent_privacy import composed, read_runs, spent_by_identity
from tests.postgres import postgres as postgres
from tests.postgres import store as store
from tests.service.conftest import LENGTH, running

ONES = torch.ones(LENGTH)
DELTA = 1e-5


def delta_by_hand(mu, epsilon):
    cdf = NormalDist().cdf
    return cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * cdf(-mu / 2 - epsilon / mu)


def private(folder, sigma, budget=None, **settings):
    config = {"privacy": {"noise_multiplier": sigma, "delta": DELTA}}
    privacy = PrivacySettings(sigma, DELTA, budget=budget)
    return running(folder, participation=Participation(5, limit=100), privacy=privacy, config=config, **settings)


def take_part(peer):
    """Return whether the client gets work, and hand its update in."""
    visit = peer.check_in()
    return visit is not None and peer.send(visit, ONES)["counted"]


def read_run(folder, store=None):
    (run,) = read_runs(folder, store)
    return run


def first_run(folder, **settings):
    """Two versions: ward a in two sums, b in one, one without a name in another; σ = 2."""
    with private(folder, 2.0, **settings) as server:
        a, b, _, nameless = server.enrol(name="a"), server.enrol(name="b"), server.enrol(name="c"), server.enrol()
        assert all(map(take_part, (a, b, nameless, a)))


def test_runs_compose_by_name_and_the_command_shows_epsilon(tmp_path, offbeat):
    one, two = tmp_path / "one", tmp_path / "two"
    first_run(one)
    assert read_run(one).participations == {"a": 2, "b": 1, "c": 0, f"client-3 of {one}": 1}
    with private(two, 3.0) as server:  # also of a run that goes on
        a = server.enrol(name="a")
        assert take_part(a)
        assert take_part(server.enrol(name="c"))
        spent = composed([read_run(one), read_run(two)])
        assert {name: (one.runs, one.participations) for name, one in spent.items()} == {
            "a": (2, 3), "b": (1, 1), "c": (1, 1), f"client-3 of {one}": (1, 1)
        }  # fmt: skip
        assert spent["a"].spending == pytest.approx(2 / 4 + 1 / 9)
        code, output, _ = offbeat("server", "privacy", str(one), str(two), "--json")
    assert code == 0
    shown = json.loads(output)
    assert (shown["delta"], [one["name"] for one in shown["clients"]][:2]) == (DELTA, ["a", "b"])
    largest = shown["clients"][0]
    mu = math.sqrt(2 / 4 + 1 / 9)
    assert delta_by_hand(mu, largest["epsilon"]) == pytest.approx(DELTA, rel=1e-6)
    assert delta_by_hand(2 * mu, largest["epsilon_replace_one"]) == pytest.approx(DELTA, rel=1e-6)
    head, first, *_ = offbeat("server", "privacy", str(one), str(two))[1].splitlines()
    assert head.endswith("name (delta 1e-05)")
    assert first.split() == [f"{largest['epsilon']:.4g}", f"{largest['epsilon_replace_one']:.4g}", "3", "2", "a"]


def test_a_run_without_noise_has_no_bound_and_one_with_a_helper_counts_there(tmp_path, offbeat):
    with running(tmp_path / "plain") as server:
        assert take_part(server.enrol(name="a"))
    code, _, error = offbeat("server", "privacy", str(tmp_path / "plain"))
    assert (code, error) == (2, "offbeat: none of these runs has [privacy], so ε has no bound\n")
    output = offbeat("server", "privacy", str(tmp_path / "plain"), "--delta", "1e-5", "--json")[1]
    assert json.loads(output)["clients"] == [
        {"name": "a", "runs": 1, "participations": 1, "epsilon": None, "epsilon_replace_one": None}
    ]
    with running(tmp_path / "masked", config={"privacy": {"helper": "https://x"}}):
        pass
    with pytest.raises(OffbeatError, match="use offbeat-helper status --clients there"):
        read_run(tmp_path / "masked")


def test_a_shared_log_is_read_too(tmp_path, store):
    first_run(tmp_path / "one", store=store)
    assert read_run(tmp_path / "one", store).participations["a"] == 2
    assert read_run(tmp_path / "one", store).noise_multiplier == 2.0


def test_a_client_takes_no_part_any_more_once_its_next_participation_would_exceed_the_limit(tmp_path):
    first_run(tmp_path / "one")
    budget, folder = Budget(4.0, spent_by_identity([tmp_path / "one"])), tmp_path / "two"
    # By hand: the most participations under σ = 3 that keep δ(ε = 4) at 1e-5 or less, after 2/4 of a and 1/4 of b.
    most = {
        name: max(n for n in range(100) if delta_by_hand(math.sqrt(spent + n / 9), 4.0) <= DELTA)
        for name, spent in (("a", 2 / 4), ("b", 1 / 4))
    }
    assert most == {"a": 3, "b": 5}
    counts = {"a": 0, "b": 0}
    with private(folder, 3.0, budget) as server:
        peers = {name: server.enrol(name=name) for name in counts}
        other = server.enrol(name="new")
        for _ in range(2):
            for name, peer in peers.items():
                counts[name] += take_part(peer)
        tokens = {name: peer.token for name, peer in (*peers.items(), ("new", other))}
        status = server.admin.http.get("/v1/status").json()["privacy"]
        mu = math.sqrt(2 / 4 + 2 / 9)
        assert delta_by_hand(mu, status["epsilon"]["largest"]) == pytest.approx(DELTA, rel=1e-6)
    with private(folder, 3.0, budget) as server:
        peers = {name: server.peer(token) for name, token in tokens.items()}
        for _ in range(10):
            for name in counts:
                counts[name] += take_part(peers[name])
            take_part(peers["new"])
        assert counts == most
        assert server.service.engine.coordinator.participation.limit_of(2) == 100
        assert any("The privacy budget of 2 of 5 clients is used up" in one for one in server.service.status().problems)
