import shutil

import pytest
import torch

from offbeat.algorithms import FedAsync, FedAvg, FedBuff, FedNova, LocalPlan
from offbeat.service.updates.upload_history import ClientKeys, Digests, UsualNorms, load_history, norm_unit
from tests.service.conftest import LENGTH, body_of, running


def test_a_history_comes_back_from_its_state():
    history = load_history(3)
    assert history.state_dict() == {"digests": [], "norms": [], "usual_norm": 0.0, "client_keys": []}
    history.digests.add(1, 4, "a", counted=True)
    history.digests.add(1, 5, "b", counted=False)
    for client, norm in ((0, 1.0), (1, 3.0), (2, 2.0)):
        history.norms.add(client, norm)
    history.keys.add(2, bytes([7]))
    state = history.state_dict()
    assert state == {
        "digests": [(1, 4, "a"), (1, 5, "b")],
        "norms": [(0, 1.0), (1, 3.0), (2, 2.0)],
        "usual_norm": 2.0,
        "client_keys": [(2, "07")],
    }
    again = load_history(3, state)
    assert again.state_dict() == state
    assert again.norms.limit == 200.0


def test_the_last_upload_and_the_last_counted_one_are_known():
    digests = Digests()
    digests.add(3, 0, "a", counted=True)
    digests.add(3, 1, "b", counted=True)
    digests.add(3, 2, "c", counted=False)
    digests.add(3, 3, "d", counted=False)
    digests.add(5, 0, "e", counted=False)
    for known in (digests, Digests(digests.entries())):
        assert [known.get(3, visit) for visit in range(4)] == [None, "b", None, "d"]
        assert known.get(5, 0) == "e"
        assert known.get(4, 0) is None


def test_a_counted_upload_is_the_last_counted_one_after_a_restart_too():
    digests = Digests()
    digests.add(3, 0, "a", counted=True)
    again = Digests(digests.entries())
    again.add(3, 1, "b", counted=False)
    assert (again.get(3, 0), again.get(3, 1)) == ("a", "b")


ONES = torch.ones(LENGTH)


def heard(*norms, clients=10):
    usual = UsualNorms(clients)
    for client, norm in enumerate(norms):
        usual.add(client, norm)
    return usual


def test_five_clients_have_to_upload_before_there_is_a_limit():
    assert heard(1.0, 1.0, 1.0, 1.0).limit is None
    assert heard(1.0, 2.0, 3.0, 4.0, 1e30).limit == 300
    assert heard(1.0, 5.0, 9.0, clients=3).limit == 500


def test_two_clients_do_not_make_a_usual_norm():
    assert heard(1e-20, 1.0, clients=2).limit is None


@pytest.mark.parametrize(
    ("payload", "steps", "said", "unit"),
    [
        ("delta", 2, 2.0, 2),
        ("delta", 4, 40.0, 4),
        ("difference", 4, 0.4, 0.4),
        ("delta", 3, 0.0, 3),
        ("delta", 0, 0.0, 1),
    ],
)
def test_norms_are_compared_for_each_unit_of_the_normaliser(payload, steps, said, unit):
    assert norm_unit(payload, LocalPlan(4, 1, 0.1), steps, said) == unit
    assert norm_unit("params", LocalPlan(4, 1, 0.1), steps, said) == 1


def test_a_client_counts_once_with_its_latest_norm():
    usual = heard(1.0, 2.0, 3.0, 4.0, 5.0)
    for _ in range(50):
        usual.add(0, 1e30)
    assert usual.limit == 400


def test_the_limit_stays_when_updates_grow_shorter():
    usual = heard(1.0, 2.0, 3.0, 4.0, 5.0)
    for client in range(5):
        usual.add(client, 1e-6)
    assert usual.limit == 300


def test_updates_of_no_steps_say_nothing():
    assert heard(0.0, 0.0, 0.0, 0.0, 0.0).limit is None
    assert heard(*[0.0] * 5, 1.0, 1.0, 1.0, 1.0, 1.0, clients=10).limit == 100


def test_a_hundred_clients_are_remembered_those_that_were_heard_last():
    usual = heard(*[1.0] * 100, clients=1000)
    for client in range(500, 560):
        usual.add(client, 7.0)
    assert len(usual.entries()) == 100
    assert usual.limit == 700
    again = UsualNorms(1000, usual.entries(), usual.usual)
    assert (again.entries(), again.limit) == (usual.entries(), usual.limit)


@pytest.mark.parametrize(
    ("make", "has_checkpoint"),
    [(lambda: FedBuff(buffer_size=2, concurrency=9), True), (lambda: FedAsync(concurrency=9), False)],
)
def test_a_server_refuses_an_update_that_is_far_too_long_also_after_a_restart(make, has_checkpoint, tmp_path):
    with running(tmp_path / "server", make, clients=6, checkpoint_seconds=1e6) as server:
        peers = [server.enrol() for _ in range(6)]
        tokens = [peer.http.headers["authorization"].split()[1] for peer in peers]
        for peer in peers[:5]:
            assert peer.send(peer.check_in(), ONES)["counted"]
        visit = peers[5].check_in()
        model = server.service.engine.coordinator.algorithm.model
        answer = peers[5].put(visit, body_of(101 * ONES))
        assert (answer.status_code, answer.json()["kind"]) == (422, "norm-too-large")
        assert "the limit 244.949: lower lr, or raise max_update_norm" in answer.json()["detail"]
        assert torch.equal(server.service.engine.coordinator.algorithm.model, model)
        if has_checkpoint:
            server.checkpoint()
        shutil.copytree(server.folder, tmp_path / "killed")
    with running(tmp_path / "killed", make, clients=6) as server:
        peer = server.peer(tokens[5])
        assert peer.put(visit, body_of(101 * ONES)).json()["kind"] == "norm-too-large"
        assert peer.send(visit, 99 * ONES)["counted"]


@pytest.mark.parametrize("size", [3e38, 1e15])
def test_an_early_update_that_no_sum_can_hold_takes_no_other_along(size, server):
    peers = [server.enrol() for _ in range(3)]
    visits = [peer.check_in() for peer in peers]
    answer = peers[0].put(visits[0], body_of(size * ONES))
    assert (answer.status_code, answer.json()["kind"]) == (422, "norm-too-large")
    for peer, visit in zip(peers[1:], visits[1:], strict=True):
        assert peer.send(visit, ONES)["counted"]
    algorithm = server.service.engine.coordinator.algorithm
    assert torch.equal(algorithm.model, -ONES)
    assert algorithm.refused_steps == {}


def test_examples_that_weigh_lower_the_limit(tmp_path):
    with running(tmp_path / "server", lambda: FedAvg(cohort=2), clients=2) as server:
        many, few = server.enrol(), server.enrol()
        for size, status in ((1e6, 422), (1e4, 200)):
            assert many.put(many.check_in(), body_of(size * ONES), examples=2**31 - 1).status_code == status
        assert few.put(few.check_in(), body_of(1e6 * ONES), examples=10).status_code == 200


def test_a_repeated_upload_is_heard_once(tmp_path):
    with running(tmp_path / "server") as server:
        peer = server.enrol()
        visit = peer.check_in()
        for _ in range(2):
            assert peer.send(visit, ONES)["counted"]
        ((client, norm),) = server.service.engine.history.norms.entries()
        assert (client, round(norm, 4)) == (0, 1.2247)  # of two steps


def test_a_client_that_says_a_small_normaliser_gains_nothing(tmp_path):
    """FedNova divides by it."""
    with running(tmp_path / "server", lambda: FedNova(cohort=5), clients=5, plan=LocalPlan(50, 1, 0.1)) as server:
        peers = [server.enrol() for _ in range(5)]
        for peer in peers:
            assert peer.send(peer.check_in(), ONES)["counted"]
        answer = peers[0].put(peers[0].check_in(), body_of(ONES), steps=1, normaliser=0.1)
        assert (answer.status_code, answer.json()["kind"]) == (422, "norm-too-large")


ONE, TWO = bytes([1] * 32), bytes([2] * 32)


def test_a_client_has_one_key_and_a_key_one_client():
    keys = ClientKeys()
    assert keys.allows(0, ONE)
    keys.add(0, ONE)
    assert keys.allows(0, ONE)
    assert not keys.allows(0, TWO)
    assert not keys.allows(1, ONE)
    assert keys.allows(1, TWO)
    assert (keys.client(ONE), keys.client(TWO)) == (0, None)


def test_keys_come_back_from_their_entries():
    keys = ClientKeys()
    keys.add(3, ONE)
    keys.add(1, TWO)
    assert keys.entries() == [(3, "01" * 32), (1, "02" * 32)]
    again = ClientKeys([list(entry) for entry in keys.entries()])  # as JSON has them
    assert not again.allows(2, ONE)
    assert again.client(TWO) == 1
