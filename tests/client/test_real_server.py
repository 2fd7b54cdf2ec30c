"""Clients and the real server, over real sockets."""

import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from offbeat_client.client_folder.outbox import Outbox
from offbeat_client.http.connection import Backoff
from offbeat_core.errors import OffbeatError
from torch import nn
from torch.nn.functional import cross_entropy

from offbeat.algorithms import SCAFFOLD, FedBuff, FedLaAvg
from offbeat.algorithms.components import Compression, LocalPlan
from offbeat.client import LocalSGD, run_client
from offbeat.service.server import admin
from offbeat.training.flat_model import FlatModel
from tests.e2e.server_process import free_port
from tests.service.conftest import running
from tests.service.http_client import until
from tests.simulation.test_simulator_contract import Greedy

PLAN = LocalPlan(steps=4, batch_size=3, lr=0.5)
TOP_K = LocalPlan(steps=4, batch_size=3, lr=0.5, compression=Compression("top_k", (("share", 0.5),)))


def make_client(client):
    inputs = torch.sin(torch.arange(20.0).view(10, 2) * (client + 1))
    return LocalSGD(nn.Linear(2, 2), cross_entropy, (inputs, (inputs[:, 0] > 0).long()))


@pytest.fixture
def run(tmp_path, quick):
    """Return a function that runs a client of a server; return how many of its updates counted."""

    def call(served, make=make_client, name="0", **options):
        options = {"enrolment_token": served.enrolment_token, "backoff": quick, **options}
        return run_client(served.url, make, tmp_path / name, **options)

    return call


def serve(tmp_path, algorithm, clients=1, **options):
    return running(tmp_path / "server", algorithm, clients=clients, **{"plan": PLAN, **options})


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        (lambda: FedBuff(buffer_size=2, concurrency=4), {}),
        (lambda: FedBuff(buffer_size=2, concurrency=4), {"plan": TOP_K}),
        (lambda: FedLaAvg(cohort=2), {"waits_for_examples": True}),
        (lambda: FedLaAvg(cohort=2), {"plan": TOP_K}),
        (lambda: SCAFFOLD(cohort=2, over_selection=1.5), {}),
    ],
)
def test_a_run_comes_to_its_end(tmp_path, run, algorithm, options):
    model = FlatModel(nn.Linear(2, 2)).vector
    with serve(tmp_path, algorithm, 3, model=model, stop_versions=4, **options) as served:
        with ThreadPoolExecutor() as pool:
            counted = list(pool.map(lambda client: run(served, name=str(client)), range(3)))
        status = served.service.status()
        assert served.service.accounts.examples.all() == [10] * 3
    assert status.finished
    assert status.version == 4
    assert sum(counted) == status.counted >= 8


def test_a_client_that_stays_goes_on_once_the_run_is_extended(tmp_path, run, monkeypatch, caplog):
    monkeypatch.setattr("offbeat_client.client_run._STAY_SECONDS", 0.1)
    caplog.set_level("INFO", "offbeat_client")
    options = {"model": FlatModel(nn.Linear(2, 2)).vector, "stop_versions": 2, "port": free_port()}
    make = lambda: FedBuff(buffer_size=1, concurrency=1)  # noqa: E731
    with ThreadPoolExecutor() as pool:
        with serve(tmp_path, make, **options) as served:
            patient = Backoff(first_seconds=0.1, largest_seconds=0.1, attempts=200)
            counted = pool.submit(run, served, stay=True, visits=5, backoff=patient)
            until(lambda: "the client stays" in caplog.text)
            assert not counted.done()
            assert admin.extend(served.folder, 4)["stop_versions"] == 4
            until(lambda: served.service.status().version == 4)
        with serve(tmp_path, make, **options) as served:  # which the client finds again
            until(lambda: caplog.text.count("the client stays") == 2)  # once for each end
            admin.extend(served.folder, 5)
            assert counted.result(60) == 5
            assert served.service.status().counted == 5


def test_a_large_update_is_transferred(tmp_path, run):
    length = 500_000
    model = {"model": torch.zeros(length), "layout": [("weight", (length,))]}
    with serve(tmp_path, lambda: FedBuff(buffer_size=1, concurrency=1, server_lr=1.0), **model) as served:
        run(served, lambda client: lambda model, visit: ({"weight": model["weight"] + 1}, 3), visits=2)
        assert served.service.engine.coordinator.algorithm.model.unique().tolist() == [2.0]


@pytest.mark.parametrize(("algorithm", "lost"), [(FedLaAvg, "kept.json"), (SCAFFOLD, "memory-*")])
def test_a_lost_memory_ends_the_client(tmp_path, run, algorithm, lost):
    with serve(tmp_path, lambda: algorithm(cohort=1)) as served:
        run(served, visits=1)
        (path,) = (tmp_path / "0").glob(lost)
        path.unlink()
        with pytest.raises(OffbeatError, match="has lost what the client remembers"):
            run(served, visits=1)
        assert served.service.engine.coordinator.algorithm.version == 1


def test_a_receipt_that_nobody_remembers_leaves_c_i_as_it_was(tmp_path, run, monkeypatch):
    """Two processes share an identity, as after a restored backup: the later visit's c_i is not the first one's."""
    with serve(tmp_path, lambda: SCAFFOLD(cohort=1)) as served:
        run(served, visits=1)
        shutil.copytree(tmp_path / "0", tmp_path / "copy")
        with monkeypatch.context() as patch:  # it makes an update, which the server does not get
            patch.setattr("offbeat_client.participant.upload", lambda *_, **__: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                run(served, name="copy", visits=1)
        run(served, visits=2)  # visit 1, and 2, which counts too
        outbox = Outbox(tmp_path / "copy")
        assert (outbox.pending().visit, outbox.kept().since) == (1, 0)
        before = outbox.memory(0, 6)
        assert run(served, name="copy", visits=1) == 0
        outbox = Outbox(tmp_path / "copy")
        assert outbox.pending() is None
        assert outbox.memory(0, 6).tolist() == before.tolist()
        # The server builds on another one by now.
        with pytest.raises(OffbeatError, match="has lost what the client remembers"):
            run(served, name="copy", visits=1)


def test_a_client_that_does_not_take_the_offset_is_refused_before_it_trains(tmp_path, run):
    trained = []

    def fit(model, visit):
        trained.append(visit)
        return model, 3

    with serve(tmp_path, lambda: SCAFFOLD(cohort=1)) as served:
        with pytest.raises(OffbeatError, match=r"add visit\.offset .*corrects_gradients = True"):
            run(served, lambda _: fit, visits=1)
        assert trained == []
        assert served.service.status().assigned == 0
        fit.corrects_gradients = True
        assert run(served, lambda _: fit, visits=1) == 1
    assert {name: tensor.shape for name, tensor in trained[0].offset.items()} == {"weight": (2, 2), "bias": (2,)}


def test_losses_reach_an_algorithm_that_needs_them(tmp_path, run):
    losses = []

    def make(client):
        local = make_client(client)

        def fit(model, visit):
            fitted = local.fit(model, visit)
            losses.append(fitted.loss)
            return fitted

        return fit

    model = FlatModel(nn.Linear(2, 2)).vector
    with serve(tmp_path, lambda: Greedy(buffer_size=1, concurrency=1), 3, model=model) as served:
        for client in range(3):
            assert run(served, make, str(client), visits=1) == 1
        assert served.service.engine.coordinator._candidates.pool.losses == losses
    assert len(set(losses)) == 3


def test_a_client_that_does_not_declare_its_examples_is_refused(tmp_path, run):
    with (
        serve(tmp_path, lambda: FedLaAvg(cohort=2), 2, waits_for_examples=True) as served,
        pytest.raises(OffbeatError, match=r"weighs every client by its examples: .*attribute `examples`"),
    ):
        run(served, lambda _: lambda model, _: (model, 3), visits=1)


def test_clients_measure_versions_of_a_run(tmp_path, run):
    """The built-in client beside one that cannot evaluate, and one whose evaluation fails."""

    def make_measuring(client):
        inputs = torch.sin(torch.arange(20.0).view(10, 2) * (client + 1))
        examples = inputs, (inputs[:, 0] > 0).long()
        return LocalSGD(nn.Linear(2, 2), "cross_entropy", examples, held_out=(inputs[:3], examples[1][:3]))

    def make_failing(client):
        local = make_client(client)
        local.evaluate = lambda model: ({"accuracy": float("nan")}, 3)
        return local

    makes = [make_measuring, make_measuring, make_client, make_failing]
    model = FlatModel(nn.Linear(2, 2)).vector
    options = {"model": model, "stop_versions": 6, "evaluate_every": 2, "evaluate_on_clients": 4}
    with serve(tmp_path, lambda: FedBuff(buffer_size=2, concurrency=4), 4, **options) as served:
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda client: run(served, makes[client], name=str(client)), range(4)))
        summary = served.service.status().evaluated_by_clients
    assert summary.version == 6
    assert 1 <= summary.answered <= 2
    assert summary.examples == 3 * summary.answered
    assert set(summary.metrics) == {"loss", "accuracy"}
