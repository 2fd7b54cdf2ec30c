"""An algorithm that implements the whole outside contract by itself, as all did before there were components."""

from typing import Any

import pytest
import torch
from offbeat_core.number_checks import check_count, check_positive
from torch import Tensor

from offbeat.algorithms import Algorithm, LocalPlan, Update
from offbeat.algorithms.components.client_update import check_client, check_update, resolve
from offbeat.algorithms.components.lazy_model import LazyModel
from offbeat.config.experiment_file import load
from offbeat.data.catalogue import load_dataset
from offbeat.worlds.algorithm_setup import dry_run
from offbeat.worlds.simulation import build_simulation


class FedPlain(Algorithm):
    """Plain asynchronous steps: ``w_{t+1} = w_t − server_lr · Δ_i`` for each arrival."""

    name = "fedplain"

    def __init__(self, *, server_lr: float = 0.1, concurrency: int = 10) -> None:
        check_positive("server_lr", server_lr)
        check_count("concurrency", concurrency)
        self.server_lr = server_lr
        self.concurrency = concurrency

    def start(self, model: Tensor, clients: int, data_weights: Tensor | None = None) -> None:
        check_count("clients", clients)
        self._model = LazyModel(model)
        self._clients = clients
        self._version = 0
        self._at_work: dict[int, int] = {}
        self._lapsed: set[int] = set()

    @property
    def model(self) -> Tensor:
        return self._model.read()

    @property
    def version(self) -> int:
        return self._version

    def slots(self) -> int:
        return min(self.concurrency, self._clients) - len(self._at_work) + len(self._lapsed)

    def assign(self, client: int, local: LocalPlan) -> LocalPlan:
        check_client(client, self._clients)
        self._at_work[client] = self._version
        self._lapsed.discard(client)
        return local

    def wants(self, client: int, version: int) -> bool:
        return self._at_work.get(client) == version

    def receive(self, update: Update) -> bool:
        check_update(update, clients=self._clients, version=self._version, length=self._model.length)
        if not self.wants(update.client, update.version):
            return False
        self._model.step(lambda model: model - self.server_lr * resolve(update.vector, len(model)))
        self._version += 1
        del self._at_work[update.client]
        self._lapsed.discard(update.client)
        return True

    def drop(self, client: int, version: int) -> bool:
        if self.wants(client, version):
            self._lapsed.add(client)
        return False

    def state_dict(self) -> dict[str, Any]:
        return {
            "model": self.model.clone(),
            "clients": self._clients,
            "version": self._version,
            "at_work": torch.tensor(list(self._at_work.items()), dtype=torch.int64).reshape(-1, 2),
            "lapsed": torch.tensor(sorted(self._lapsed), dtype=torch.int64),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.start(state["model"], state["clients"])
        self._version = state["version"]
        self._at_work = dict(state["at_work"].tolist())
        self._lapsed = set(state["lapsed"].tolist())


def test_an_authors_constructor_is_kept():
    assert (FedPlain().server_lr, FedPlain(concurrency=3).concurrency) == (0.1, 3)
    with pytest.raises(ValueError, match="server_lr must be greater than 0, got 0"):
        FedPlain(server_lr=0)
    with pytest.raises(TypeError):
        FedPlain(0.5)


def test_arrivals_by_hand(plan, upload):
    algorithm = FedPlain(server_lr=0.5)
    algorithm.start(torch.tensor([1.0, 2.0]), clients=3)
    for client in range(3):
        algorithm.assign(client, plan)
    assert algorithm.receive(upload(0, 0, 2, -4)) is True
    assert algorithm.model.tolist() == [0, 4]
    assert algorithm.receive(upload(2, 0, 1, 1)) is True
    assert algorithm.result.tolist() == [-0.5, 3.5]
    assert (algorithm.version, algorithm.slots()) == (2, 2)
    assert list(algorithm.urgent()) == []


def test_the_first_visit_is_checked(plan):
    algorithm = FedPlain()
    dry_run(algorithm, torch.zeros(4), torch.ones(5), plan)
    assert not hasattr(algorithm, "_model")


def test_defaults_are_those_of_a_continuous_schedule():
    algorithm = FedPlain()
    algorithm.start(torch.zeros(1), clients=3)
    assert (algorithm.round, algorithm.returns_in(0), algorithm.tick()) == (None, None, False)
    assert algorithm.wants_all is False
    assert algorithm.weighs_all_clients is False
    assert list(algorithm.sealed) == []
    assert dict(algorithm.refused_steps) == {}
    assert algorithm.clients == 3


OWN = f"algorithm = '{__file__}:FedPlain'"
FEDBUFF_OF_ONE = "algorithm = 'fedbuff'\nbuffer_size = 1\nstaleness = { name = 'constant' }"


@pytest.fixture
def simulate(tiny_toml, tmp_path):
    """Return a function that builds the small experiment's simulation of an algorithm given by its table."""

    def build(table):
        path = tmp_path / "tiny.toml"
        path.write_text(f"{tiny_toml}\n[algorithms.mine]\nserver_lr = 0.5\nconcurrency = 4\n{table}\n")
        experiment, digits = load(path), load_dataset("digits")
        return build_simulation(experiment, "mine", 1, digits)

    return build


def test_a_simulation_equals_fedbuffs_with_one_update_a_version(simulate):
    own, reference = simulate(OWN), simulate(FEDBUFF_OF_ONE)
    curves = [list(simulation.run()) for simulation in (own, reference)]
    assert len(curves[0]) > 2
    assert [evaluation.version for evaluation in curves[0]] == [evaluation.version for evaluation in curves[1]]
    assert curves[0][-1].version > 10
    torch.testing.assert_close(own.model, reference.model, rtol=1e-5, atol=1e-6)
