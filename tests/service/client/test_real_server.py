"""Clients and the real server, over real sockets."""

import shutil
import threading

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from offbeat.algorithms import SCAFFOLD, FedBuff, FedLaAvg
from offbeat.algorithms.components import Compression, LocalPlan
from offbeat.errors import OffbeatError
from offbeat.service.client import LocalSGD, run_client
from offbeat.training.flat_model import FlatModel
from offbeat_client.client_folder.outbox import Outbox
from offbeat_client.http.connection import Connection
from offbeat_client.messages import CheckedIn, CheckInRequest, Enrolled, Enrolment
from tests.service.conftest import running
from tests.simulation.test_simulator_contract import Greedy

LAYOUT = [("weight", (2, 2)), ("bias", (2,))]
PLAN = LocalPlan(steps=4, batch_size=3, lr=0.5)
TOP_K = LocalPlan(steps=4, batch_size=3, lr=0.5, compression=Compression("top_k", (("share", 0.5),)))


def make_client(client):
    inputs = torch.sin(torch.arange(20.0).view(10, 2) * (client + 1))
    return LocalSGD(nn.Linear(2, 2), cross_entropy, (inputs, (inputs[:, 0] > 0).long()))


def take_part(served, folder, clients, quick, **options):
    """Run so many clients at a time; return how many updates of each counted."""
    counted = {}

    def live(client):
        counted[client] = run_client(
            served.url,
            make_client,
            folder / str(client),
            enrolment_token=served.enrolment_token,
            backoff=quick,
            **options,
        )

    threads = [threading.Thread(target=live, args=(client,)) for client in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    return counted


@pytest.mark.parametrize(
    ("algorithm", "plan"),
    [
        (lambda: FedBuff(buffer_size=2, concurrency=4), PLAN),
        (lambda: FedBuff(buffer_size=2, concurrency=4), TOP_K),
        (lambda: FedLaAvg(cohort=2), PLAN),
        (lambda: FedLaAvg(cohort=2), TOP_K),
        (lambda: SCAFFOLD(cohort=2, over_selection=1.5), PLAN),
    ],
)
def test_a_run_comes_to_its_end(tmp_path, quick, algorithm, plan):
    model = FlatModel(nn.Linear(2, 2)).vector
    with running(tmp_path / "server", algorithm, clients=3, plan=plan, model=model, stop_versions=4) as served:
        counted = take_part(served, tmp_path, 3, quick)
        status = served.service.status()
    assert status.finished
    assert status.version == 4
    assert sum(counted.values()) == status.counted >= 8


def test_a_client_that_comes_again_is_the_same(tmp_path, quick):
    with running(tmp_path / "server", lambda: FedBuff(buffer_size=1, concurrency=1), clients=1, plan=PLAN) as served:
        for _ in range(3):
            assert take_part(served, tmp_path, 1, quick, visits=1) == {0: 1}
        assert served.service.status().version == 3


def test_a_large_update_is_asked_for_and_travels(tmp_path, quick):
    length = 500_000
    layout = [("weight", (length,))]
    with running(
        tmp_path / "server",
        lambda: FedBuff(buffer_size=1, concurrency=1, server_lr=1.0),
        clients=1,
        plan=PLAN,
        model=torch.zeros(length),
        layout=layout,
    ) as served:
        ones = torch.ones(length)
        run_client(
            served.url,
            lambda client: lambda model, visit: ({"weight": model["weight"] + ones}, 3),
            tmp_path / "me",
            enrolment_token=served.enrolment_token,
            visits=2,
            backoff=quick,
        )
        assert served.service.engine.coordinator.algorithm.model.unique().tolist() == [2.0]


def test_a_memory_that_is_lost_is_said(tmp_path, quick):
    with running(tmp_path / "server", lambda: FedLaAvg(cohort=1), clients=1, plan=PLAN) as served:
        take_part(served, tmp_path, 1, quick, visits=1)
        (tmp_path / "0" / "kept.json").unlink()
        with pytest.raises(OffbeatError, match="has lost what the client remembers"):
            run_client(served.url, make_client, tmp_path / "0", visits=1, backoff=quick)


def test_c_i_that_is_lost_is_said(tmp_path, quick):
    with running(tmp_path / "server", lambda: SCAFFOLD(cohort=1), clients=1, plan=PLAN) as served:
        take_part(served, tmp_path, 1, quick, visits=1)
        (memory,) = (tmp_path / "0").glob("memory-*")
        memory.unlink()
        with pytest.raises(OffbeatError, match="has lost what the client remembers"):
            run_client(served.url, make_client, tmp_path / "0", visits=1, backoff=quick)
        assert served.service.engine.coordinator.algorithm.version == 1


def test_a_receipt_that_nobody_remembers_leaves_c_i_as_it_was(tmp_path, quick, monkeypatch):
    """Two processes share an identity, as after a restored backup: the later visit's c_i is not the first one's."""
    with running(tmp_path / "server", lambda: SCAFFOLD(cohort=1), clients=1, plan=PLAN) as served:
        take_part(served, tmp_path, 1, quick, visits=1)
        shutil.copytree(tmp_path / "0", tmp_path / "copy")
        with monkeypatch.context() as patch:  # it makes an update, which the server does not get
            patch.setattr("offbeat_client.run.upload", lambda *_, **__: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                run_client(served.url, make_client, tmp_path / "copy", visits=1, backoff=quick)
        take_part(served, tmp_path, 1, quick, visits=2)  # visit 1, and 2, which counts too
        outbox = Outbox(tmp_path / "copy")
        pending = outbox.pending()
        assert (pending.visit, outbox.kept().since) == (1, 0)
        before = outbox.memory(0, 6)
        assert run_client(served.url, make_client, tmp_path / "copy", visits=1, backoff=quick) == 0
        outbox = Outbox(tmp_path / "copy")
        assert outbox.pending() is None
        assert outbox.memory(0, 6).tolist() == before.tolist()
        # The server builds on another one by now.
        with pytest.raises(OffbeatError, match="has lost what the client remembers"):
            run_client(served.url, make_client, tmp_path / "copy", visits=1, backoff=quick)


def test_a_client_that_does_not_take_the_offset_is_told_so_before_it_trains(tmp_path, quick):
    trained = []

    def fit(model, visit):
        trained.append(visit)
        return model, 3

    with running(tmp_path / "server", lambda: SCAFFOLD(cohort=1), clients=1, plan=PLAN) as served:
        options = {"enrolment_token": served.enrolment_token, "visits": 1, "backoff": quick}
        with pytest.raises(OffbeatError, match=r"add visit\.offset .*corrects_gradients = True") as caught:
            run_client(served.url, lambda _: fit, tmp_path / "me", **options)
        assert "\n" not in str(caught.value)
        assert trained == []
        assert served.service.status().assigned == 0
        fit.corrects_gradients = True
        assert run_client(served.url, lambda _: fit, tmp_path / "me", **options) == 1
    assert {name: tensor.shape for name, tensor in trained[0].offset.items()} == {"weight": (2, 2), "bias": (2,)}


def test_losses_reach_an_algorithm_that_needs_them(tmp_path, quick):
    said = {}

    def make(client):
        local = make_client(client)

        def fit(model, visit):
            fitted = local.fit(model, visit)
            said[client] = fitted.loss
            return fitted

        return fit

    model = FlatModel(nn.Linear(2, 2)).vector
    with running(
        tmp_path / "server", lambda: Greedy(buffer_size=1, concurrency=1), clients=3, plan=PLAN, model=model
    ) as served:
        for client in range(3):
            folder, options = tmp_path / str(client), {"visits": 1, "backoff": quick}
            assert run_client(served.url, make, folder, enrolment_token=served.enrolment_token, **options) == 1
        losses = served.service.engine.coordinator._candidates.pool.losses
    assert losses == [said[client] for client in range(3)]
    assert len(set(losses)) == 3


def test_a_client_that_returns_no_loss_where_one_is_needed_gets_one_line(tmp_path, quick):
    with running(tmp_path / "server", lambda: Greedy(buffer_size=1, concurrency=1), clients=1, plan=PLAN) as served:
        options = {"enrolment_token": served.enrolment_token, "visits": 1, "backoff": quick}
        with pytest.raises(OffbeatError, match="needs the mean training loss of each visit: return Fitted"):
            run_client(served.url, lambda _: lambda model, _: (model, 3), tmp_path / "me", **options)
        assert served.service.status().lost == 1  # it has given its visit up


def test_a_revoked_client_is_told(tmp_path, quick):
    with running(tmp_path / "server", clients=1, plan=PLAN) as served:
        with Connection(served.url, served.enrolment_token, backoff=quick) as connection:
            token = connection.ask("POST", "/v1/enrol", Enrolled, Enrolment()).token
        served.admin.http.delete("/v1/clients/0")
        with (
            Connection(served.url, token, backoff=quick) as connection,
            pytest.raises(OffbeatError, match="revoked-token"),
        ):
            connection.ask("POST", "/v1/checkin", CheckedIn, CheckInRequest())


def test_clients_of_an_algorithm_that_weighs_all_declare_their_examples_by_themselves(tmp_path, quick):
    model = FlatModel(nn.Linear(2, 2)).vector
    with running(
        tmp_path / "server",
        lambda: FedLaAvg(cohort=2),
        clients=2,
        plan=PLAN,
        model=model,
        stop_versions=2,
        waits_for_examples=True,
    ) as served:
        counted = take_part(served, tmp_path, 2, quick)
        assert served.service.accounts.examples.all() == [10, 10]
    assert sum(counted.values()) >= 2


def test_a_client_that_cannot_say_how_many_examples_it_holds_gets_one_line(tmp_path, quick):
    settings = {"clients": 2, "plan": PLAN, "waits_for_examples": True}
    with running(tmp_path / "server", lambda: FedLaAvg(cohort=2), **settings) as served:
        options = {"enrolment_token": served.enrolment_token, "visits": 1, "backoff": quick}
        with pytest.raises(OffbeatError, match=r"weighs every client by its examples: .*attribute `examples`"):
            run_client(served.url, lambda _: lambda model, _: (model, 3), tmp_path / "me", **options)


@pytest.mark.parametrize("examples", [0, 2**31, 1.5, "many", True])
def test_a_number_of_examples_that_is_none_is_refused_before_it_is_sent(examples, tmp_path, quick):
    class Mine:
        def fit(self, model, visit):
            return model, 3

    client = Mine()
    client.examples = examples
    with running(tmp_path / "server", clients=2, plan=PLAN) as served:
        options = {"enrolment_token": served.enrolment_token, "visits": 1, "backoff": quick}
        with pytest.raises(OffbeatError, match="the client's examples must be"):
            run_client(served.url, lambda _: client, tmp_path / "me", **options)
