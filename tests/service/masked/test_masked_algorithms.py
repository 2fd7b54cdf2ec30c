"""Every algorithm that may be private, over the service: masked sums are those of the whole numbers, bit for bit."""

import base64
import shutil
from random import Random

import numpy as np
import pytest
import torch
from offbeat_core.local_plan import normaliser
from offbeat_private.masks.envelope import parse
from offbeat_private.masks.keystream import keystream

from offbeat.algorithms import (
    ACE,
    CA2FL,
    FADAS,
    MIFA,
    AsyncCommSGD,
    FedAvg,
    FedBuff,
    FedLaAvg,
    FedLuck,
    FedNova,
    LocalPlan,
    RingmasterASGD,
    Update,
)
from offbeat.algorithms.components.buffers.secret import secret
from offbeat.algorithms.components.schedules.patterns import full
from tests.service.conftest import LENGTH
from tests.service.http_client import kind_of, until
from tests.service.masked.conftest import enrolled_helper, masked_server

PLAN = LocalPlan(steps=4, batch_size=1, lr=0.5)
DIFFERENCES = {"payload": "difference", "buffer": 5}
ALGORITHMS = {
    "ace": (lambda: ACE(weighting="uniform", concurrency=4), DIFFERENCES),
    "ca2fl": (lambda: CA2FL(buffer_size=2, weighting="uniform", concurrency=4), DIFFERENCES),
    "fadas": (lambda: FADAS(buffer_size=2, concurrency=4, delay_bound=1), {}),
    "fedbuff": (lambda: FedBuff(buffer_size=2, concurrency=4), {}),
    "ringmaster": (lambda: RingmasterASGD(delay_bound=3, concurrency=4), {}),
    "fedavg": (lambda: FedAvg(cohort=2, weighting="uniform"), {}),
    "fednova": (lambda: FedNova(cohort=2), {"normalise": True}),
    "fedlaavg": (lambda: FedLaAvg(cohort=2, weighting="uniform"), DIFFERENCES),
    "mifa": (lambda: MIFA(weighting="uniform"), DIFFERENCES),
    "fedluck": (lambda: unmeasured(FedLuck(period=0.1)), {"buffer": 5}),
    "async_comm_sgd": (
        lambda: AsyncCommSGD(weighting="uniform", pattern=full(every=2), period=0.1),
        {"buffer": 5},
    ),
}


def unmeasured(algorithm):
    algorithm.measures = False
    return algorithm


def random_delta(random):
    return torch.tensor([random.uniform(-0.3, 0.3) for _ in range(LENGTH)])


def whole_numbers(helper, ready):
    """Return the numbers behind a share's mask, int32 ``(d,)``."""
    envelope = parse(base64.b64decode(ready.head["share"]))
    seed = envelope.open(helper.helper._keys.read(envelope.binding.epoch))
    masked = np.frombuffer(ready.body, "<u4").astype(np.uint32)
    return torch.from_numpy((masked - keystream(seed, 0, LENGTH)).view(np.int32))


class Remembering:
    """A masked client with the memories of its last two counted updates."""

    def __init__(self, client):
        self.client = client
        self.memories = {}

    def share(self, visit, delta):
        since = visit["since"] if visit["payload"] == "difference" else None
        ready = self.client.share(visit, delta, previous=self.memories.get(since))
        return ready._replace(head=ready.head | {"since": since})

    def put(self, visit, ready):
        answer = self.client.put(visit, ready)
        assert answer.status_code == 200, answer.text
        receipt = answer.json()["receipt"]
        if receipt["counted"]:
            since = ready.head["since"]
            self.memories = {since: self.memories.get(since), visit["version"]: ready.quantised}
        return receipt

    def give(self, delta):
        visit = self.client.check_in()
        ready = self.share(visit, delta)
        assert self.put(visit, ready)["counted"]
        return visit, ready


def plain_algorithm(name, terms):
    """Return the algorithm that gets whole numbers without masks."""
    plain = ALGORITHMS[name][0]()
    plain.wrap(secret(step=terms.step, bound=2**30, least=2))
    plain.start(torch.zeros(LENGTH), 5)
    return plain


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_masked_sums_equal_whole_numbers_bit_for_bit(name, tmp_path):
    make, terms = ALGORITHMS[name]
    random = Random(name)
    with enrolled_helper(tmp_path / "helper", **terms) as helper:
        plain = plain_algorithm(name, helper.terms)
        with masked_server(tmp_path / "server", helper, make, plan=PLAN) as server:
            clients = [Remembering(server.client(number)) for number in range(5)]
            for turn in range(8):
                at_work = []
                for number in random.sample(range(5), 5):
                    if len(at_work) < 2 and (visit := clients[number].client.check_in()) is not None:
                        at_work.append((number, visit))
                for number, _ in at_work:
                    plain.assign(number, PLAN)
                for number, visit in at_work:
                    ready = clients[number].share(visit, random_delta(random))
                    facts = 1, 4, normaliser(PLAN)
                    update = Update(number, visit["version"], whole_numbers(helper, ready), *facts, share=b"")
                    assert clients[number].put(visit, ready)["counted"]
                    plain.receive(update._replace(since=ready.head["since"], plan=PLAN))
                while not plain.sealed:
                    plain.tick()
                plain.reveal(plain.buffer.masked_sum(plain.sealed[0]))
                until(lambda turn=turn: server.algorithm.version == turn + 1)
                assert torch.equal(server.algorithm.model, plain.model)


@pytest.fixture
def helper(tmp_path):
    with enrolled_helper(tmp_path / "helper", **DIFFERENCES) as made:
        yield made


def fedlaavg():
    return FedLaAvg(cohort=2, weighting="uniform")


def total_of(server, version):
    until(lambda: server.algorithm.version == version)
    server.algorithm.model  # noqa: B018 - the sum is added as the model is read
    return server.algorithm.buffer._total.tolist()


def test_after_a_discarded_sum_differences_refer_to_the_updates_before(helper, tmp_path):
    noise = np.random.default_rng(1).integers(2**32, size=LENGTH, dtype=np.uint32)
    random = Random(5)
    with masked_server(tmp_path / "server", helper, fedlaavg, checkpoint_seconds=1e6) as server:
        clients = [Remembering(server.client(number)) for number in range(4)]
        first = [clients[number].give(random_delta(random)) for number in range(2)]
        expected = sum(ready.quantised for _, ready in first).tolist()
        assert total_of(server, 1) == expected
        helper.answered = lambda number, words: words + noise if number == 2 else words
        for number in range(2):
            visit, _ = clients[number].give(random_delta(random))
            assert visit["since"] == 0
        until(lambda: server.status()["sums_discarded"] == 1)
        for number in (2, 3):
            clients[number].give(random_delta(random))
        until(lambda: server.algorithm.version == 2)
        server.served.admin.http.get("/v1/status")
        shutil.copytree(tmp_path / "server", tmp_path / "killed")
    with masked_server(tmp_path / "killed", helper, fedlaavg) as server:
        for client in clients:
            client.client = server.again(client.client)
        # Clients of a failed sum come apart: the second one waits for one sum more.
        for number in (0, 2):
            visit, _ = clients[number].give(random_delta(random))
            assert visit["since"] == {0: 0, 2: 1}[number]
        total = total_of(server, 3)
        latest = [clients[0].memories[2], first[1][1].quantised, clients[2].memories[2], clients[3].memories[1]]
        assert total == sum(latest).tolist()


def test_a_client_without_its_memory_is_refused_and_its_old_update_stays(helper, tmp_path):
    random = Random(7)
    with masked_server(tmp_path / "server", helper, fedlaavg) as server:
        clients = [Remembering(server.client(number)) for number in range(3)]
        for number in range(2):
            clients[number].give(random_delta(random))
        total = total_of(server, 1)
        visit = clients[0].client.check_in()
        ready = clients[0].client.share(visit, random_delta(random))  # to nothing
        assert kind_of(clients[0].client.put(visit, ready), 422) == "lost-memory"
        assert server.algorithm.buffer._total.tolist() == total
        assert server.served.service.engine.coordinator.statistics.counted == 2


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_memory_and_sums_survive_a_kill_of_the_server(has_checkpoint, helper, tmp_path):
    random = Random(3)
    with masked_server(tmp_path / "server", helper, fedlaavg, checkpoint_seconds=1e6) as server:
        clients = [Remembering(server.client(number)) for number in range(2)]
        for client in clients:
            client.give(random_delta(random))
        total_of(server, 1)
        helper.is_reachable = False
        visits = [client.client.check_in() for client in clients]
        shares = [client.share(visit, random_delta(random)) for client, visit in zip(clients, visits, strict=True)]
        for client, visit, share in zip(clients, visits, shares, strict=True):
            client.put(visit, share)
        if has_checkpoint:
            server.served.checkpoint()
        server.served.admin.http.get("/v1/status")
        shutil.copytree(tmp_path / "server", tmp_path / "killed")
    helper.is_reachable = True
    with masked_server(tmp_path / "killed", helper, fedlaavg) as server:
        assert total_of(server, 2) == sum(client.memories[1] for client in clients).tolist()
        again = [server.again(client.client) for client in clients]
        assert [client.check_in()["since"] for client in again] == [1, 1]
