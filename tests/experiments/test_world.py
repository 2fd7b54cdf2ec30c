from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import pytest
import torch

from offbeat.errors import OffbeatError
from offbeat.experiments import sections, world
from offbeat.experiments.config import Experiment
from offbeat.experiments.world import build_model, build_simulation
from offbeat.population import distributions
from offbeat.population.dataset import Dataset
from offbeat.population.datasets import load_dataset
from offbeat.randomness import Purpose


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load_dataset("digits")


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch, digits: Dataset) -> Callable[..., dict[str, Any]]:
    """Return a function that builds a world and returns what its parts were made from."""
    seen: dict[str, Any] = {}

    def spy(name: str) -> None:
        real = getattr(world, name)

        def call(*arguments: Any, **named: Any) -> Any:
            seen[name] = (arguments, named)
            return real(*arguments, **named)

        monkeypatch.setattr(world, name, call)

    for name in ("Coordinator", "LoopTrainer", "Evaluator", "Simulation"):
        spy(name)

    def build(experiment: Experiment, label: str, seed: int) -> dict[str, Any]:
        seen.clear()
        model = build_model(experiment, digits, seed)
        initial = model.vector.clone()
        simulation = build_simulation(experiment, label, seed, digits, model)
        return {
            "initial": initial,
            "model": simulation.model,
            "shards": seen["LoopTrainer"][1]["shards"],
            "devices": seen["Simulation"][0][1],
            "simulation": seen["Simulation"][1],
            "coordinator": seen["Coordinator"],
            "evaluator": seen["Evaluator"][1],
            "trainer": seen["LoopTrainer"][1],
        }

    return build


def same_devices(one: Any, other: Any) -> bool:
    names = ("step_seconds", "down_bytes_per_second", "up_bytes_per_second", "loss_probability")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


def same_shards(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(map(np.array_equal, one, other))


MLP = ("model.name=mlp", "model.hidden=[5]")


class TestModel:
    def test_softmax(self, experiment: Callable[..., Experiment], digits: Dataset) -> None:
        model = build_model(experiment(), digits, 1)
        assert model.vector.shape == (64 * 10 + 10,)
        assert not model.vector.any()

    def test_mlp_with_its_hidden_units(self, experiment: Callable[..., Experiment], digits: Dataset) -> None:
        model = build_model(experiment("model.name=mlp", "model.hidden=[5, 3]"), digits, 1)
        assert model.vector.shape == (64 * 5 + 5 + 5 * 3 + 3 + 3 * 10 + 10,)
        assert model.module(torch.from_numpy(digits.test_inputs[:7])).shape == (7, 10)

    def test_comes_from_the_seed(self, experiment: Callable[..., Experiment], digits: Dataset) -> None:
        one, again, other = (build_model(experiment(*MLP), digits, seed).vector for seed in (1, 1, 2))
        assert torch.equal(one, again)
        assert not torch.equal(one, other)


class TestWorld:
    def test_is_the_same_for_every_algorithm(
        self, experiment: Callable[..., Experiment], built: Callable[..., dict[str, Any]]
    ) -> None:
        here = experiment(*MLP)
        first = built(here, "fedavg", 1)
        for label in ("fedasync", "fedbuff"):
            other = built(here, label, 1)
            assert same_devices(first["devices"], other["devices"])
            assert same_shards(first["shards"], other["shards"])
            assert torch.equal(first["initial"], other["initial"])
            assert torch.equal(first["initial"], other["model"])

    def test_is_another_for_another_seed(
        self, experiment: Callable[..., Experiment], built: Callable[..., dict[str, Any]]
    ) -> None:
        one, other = (built(experiment(*MLP), "fedavg", seed) for seed in (1, 2))
        assert not np.array_equal(one["devices"].step_seconds, other["devices"].step_seconds)
        assert not np.array_equal(one["devices"].up_bytes_per_second, other["devices"].up_bytes_per_second)
        assert not np.array_equal(one["devices"].loss_probability, other["devices"].loss_probability)
        assert not same_shards(one["shards"], other["shards"])
        assert not torch.equal(one["initial"], other["initial"])

    def test_every_part_gets_the_runs_seed(
        self, experiment: Callable[..., Experiment], built: Callable[..., dict[str, Any]]
    ) -> None:
        parts = built(experiment(), "fedavg", 7)
        assert parts["coordinator"][1]["seed"] == parts["trainer"]["seed"] == parts["simulation"]["seed"] == 7

    def test_clients_are_as_the_section_says(
        self, experiment: Callable[..., Experiment], built: Callable[..., dict[str, Any]]
    ) -> None:
        parts = built(experiment(), "fedavg", 1)
        devices = parts["devices"]
        assert len(parts["shards"]) == 20
        assert sorted(np.concatenate(parts["shards"])) == list(range(1433))
        assert devices.down_bytes_per_second.tolist() == [1e5] * 20
        assert (devices.up_bytes_per_second >= 1e4).all()
        assert len(set(devices.up_bytes_per_second)) == len(set(devices.step_seconds)) == 20
        assert sorted(devices.loss_probability) == [0.0] * 14 + [0.5] * 6

    def test_up_and_down_are_drawn_apart(
        self, experiment: Callable[..., Experiment], built: Callable[..., dict[str, Any]]
    ) -> None:
        same = '{ distribution = "lognormal", median = 1.0, sigma = 1.0 }'
        keys = ("step_seconds", "down_bytes_per_second", "up_bytes_per_second")
        devices = built(experiment(*(f"population.{key}={same}" for key in keys)), "fedavg", 1)["devices"]
        ranks = {tuple(np.argsort(getattr(devices, key))) for key in keys}
        assert len(ranks) == 3

    def test_a_constant_is_the_same_for_all(
        self, experiment: Callable[..., Experiment], built: Callable[..., dict[str, Any]]
    ) -> None:
        change = 'population.step_seconds={ distribution = "constant", value = 2.5 }'
        assert built(experiment(change), "fedavg", 1)["devices"].step_seconds.tolist() == [2.5] * 20

    def test_the_partition_is_the_one_that_is_asked_for(
        self, experiment: Callable[..., Experiment], built: Callable[..., dict[str, Any]]
    ) -> None:
        iid = built(experiment('population.partition={ name = "iid" }'), "fedavg", 1)
        assert {len(shard) for shard in iid["shards"]} == {71, 72}
        skewed = built(experiment("population.partition.alpha=0.01"), "fedavg", 1)
        even = built(experiment("population.partition.alpha=1000.0"), "fedavg", 1)
        spread = [np.std([len(shard) for shard in parts["shards"]]) for parts in (even, skewed)]
        assert 5 * spread[0] < spread[1]

    def test_without_lossy_clients_nothing_is_lost(
        self, experiment: Callable[..., Experiment], built: Callable[..., dict[str, Any]], tiny: dict[str, Any]
    ) -> None:
        del tiny["population"]["lossy"]
        assert not built(experiment(), "fedavg", 1)["devices"].loss_probability.any()

    def test_the_rest_of_the_file_arrives(
        self, experiment: Callable[..., Experiment], built: Callable[..., dict[str, Any]], digits: Dataset
    ) -> None:
        changes = ("server.max_staleness=0", "stop.versions=7", "stop.updates=8", "algorithms.fedbuff.local.steps=9")
        parts = built(experiment(*changes), "fedbuff", 1)
        algorithm, _ = parts["coordinator"][0]
        named = parts["coordinator"][1]
        assert algorithm.buffer_size == 2
        assert (named["clients"], named["lease_seconds"], named["max_staleness"]) == (20, 30.0, 0)
        assert named["local"].steps == 9
        stop = parts["simulation"]["stop"]
        assert (stop.virtual_seconds, stop.versions, stop.updates) == (60.0, 7, 8)
        assert parts["simulation"]["evaluate_every_seconds"] == 20.0
        assert parts["evaluator"]["inputs"].numpy() is not digits.train_inputs
        assert np.array_equal(parts["evaluator"]["inputs"].numpy(), digits.test_inputs)
        assert np.array_equal(parts["evaluator"]["labels"].numpy(), digits.test_labels)
        assert np.array_equal(parts["trainer"]["inputs"].numpy(), digits.train_inputs)
        assert np.array_equal(parts["trainer"]["labels"].numpy(), digits.train_labels)

    def test_what_is_not_set_has_no_limit(
        self, experiment: Callable[..., Experiment], built: Callable[..., dict[str, Any]], tiny: dict[str, Any]
    ) -> None:
        del tiny["population"]["lossy"], tiny["server"], tiny["stop"]["virtual_seconds"]
        tiny["stop"]["updates"] = 3
        parts = built(experiment(), "fedavg", 1)
        stop = parts["simulation"]["stop"]
        assert (stop.virtual_seconds, stop.versions, stop.updates) == (np.inf, np.inf, 3)
        named = parts["coordinator"][1]
        assert (named["lease_seconds"], named["max_staleness"]) == (np.inf, None)

    @pytest.mark.parametrize(
        ("change", "parts"),
        [
            ("algorithms.fedavg.cohort=21", ["algorithms.fedavg: ", "cohort", "20", "21"]),
            ("population.clients=1434", ["1434 clients", "1433"]),
            ("population.partition.alpha=1e10", ["alpha", "at most 1e+09"]),
            ("population.step_seconds.sigma=1e5", ["sigma", "too large"]),
        ],
    )
    def test_what_does_not_fit_is_one_line(
        self, change: str, parts: list[str], experiment: Callable[..., Experiment], digits: Dataset
    ) -> None:
        here = experiment(change)
        with pytest.raises(OffbeatError) as caught:
            build_simulation(here, "fedavg", 1, digits, build_model(here, digits, 1))
        line = str(caught.value)
        assert "\n" not in line
        assert all(part in line for part in parts)


DISTRIBUTIONS = {
    "constant": (distributions.constant, {"value": 2.0}),
    "uniform": (distributions.uniform_between, {"low": 1.0, "high": 3.0}),
    "exponential": (distributions.exponential, {"mean": 2.0}),
    "half_normal": (distributions.half_normal, {"mean": 2.0}),
    "lognormal": (distributions.lognormal, {"median": 2.0, "sigma": 0.5}),
    "pareto": (distributions.pareto, {"minimum": 1.0, "shape": 2.0}),
}


def test_there_is_a_distribution_for_each_section():
    kinds = get_args(sections.DistributionSection)
    assert {get_args(kind.model_fields["distribution"].annotation)[0] for kind in kinds} == set(DISTRIBUTIONS)
    for kind in kinds:
        (name,) = get_args(kind.model_fields["distribution"].annotation)
        assert set(kind.model_fields) == {"distribution", *DISTRIBUTIONS[name][1]}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_a_distribution_of_the_file_reaches_the_devices(name, experiment):
    distribution, parameters = DISTRIBUTIONS[name]
    table = ", ".join(f"{key} = {value}" for key, value in parameters.items())
    settings = experiment(f'population.step_seconds={{ distribution = "{name}", {table} }}')
    dataset = load_dataset(settings.data.name)
    simulation = build_simulation(settings, "fedbuff", 1, dataset, build_model(settings, dataset, 1))
    expected = distribution(settings.population.clients, **parameters, seed=1, purpose=Purpose.DEVICE_SPEED)
    assert simulation._step_seconds == expected.tolist()
