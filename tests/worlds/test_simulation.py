"""Simulations from an experiment, and the arguments of their parts."""

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from offbeat_core.errors import OffbeatError
from offbeat_core.local_plan import Epochs

from offbeat.algorithms import SCAFFOLD, FedBuff, FedLaAvg, LocalPlan
from offbeat.config.experiment_file import Experiment
from offbeat.config.experiment_sections import FlowerSection
from offbeat.data.dataset import Dataset
from offbeat.data.user_data import from_user
from offbeat.training.accelerator import CPU
from offbeat.training.objectives import LOSSES
from offbeat.worlds import simulation as module
from offbeat.worlds import workload_check
from offbeat.worlds.simulation import build_flower_backend, build_simulation
from offbeat.worlds.workload import build_model
from tests.error_line import error_line

Load = Callable[..., Experiment]
Build = Callable[..., dict[str, Any]]

MLP = ("model.name=mlp", "model.hidden=[5]")
LSTM = ("model.name=lstm", "population={ clients = 2 }", "algorithms={ fedasync = { concurrency = 2 } }")


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch, digits: Dataset) -> Build:
    """Return a function that builds a simulation and returns the arguments of its parts."""
    calls: dict[str, Any] = {}

    def spy(name: str, module: Any = module) -> None:
        real = getattr(module, name)

        def call(*arguments: Any, **named: Any) -> Any:
            calls[name] = (arguments, named)
            return real(*arguments, **named)

        monkeypatch.setattr(module, name, call)

    for name in ("Coordinator", "make_trainer", "Simulation"):
        spy(name)
    spy("check_fit", workload_check)

    def build(experiment: Experiment, label: str = "fedavg", seed: int = 1) -> dict[str, Any]:
        initial = build_model(experiment.model, digits, seed).vector
        simulation = build_simulation(experiment, label, seed, digits)
        (algorithm, _), coordinator = calls["Coordinator"]
        return {
            "initial": initial,
            "model": simulation.model,
            "algorithm": algorithm,
            "coordinator": coordinator,
            "trainer": calls["make_trainer"][1],
            "workload": calls["make_trainer"][0][1],
            "devices": calls["Simulation"][0][1],
            "simulation": calls["Simulation"][1],
            "check_fit": calls["check_fit"],
        }

    return build


def device_numbers(devices: Any) -> list[Any]:
    """Return everything that the seed draws of the devices."""
    links = [devices.down.mean_bytes_per_second(), devices.up.mean_bytes_per_second()]
    return [devices.step_seconds, *links, devices.loss_probability]


def same(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(map(np.array_equal, one, other))


class TestSeeds:
    def test_one_seed_is_the_same_world_for_every_algorithm(self, experiment: Load, parts: Build) -> None:
        here = experiment(*MLP)
        first = parts(here, "fedavg")
        for label in ("fedasync", "fedbuff"):
            other = parts(here, label)
            assert same(device_numbers(first["devices"]), device_numbers(other["devices"]))
            assert same(first["workload"].shards, other["workload"].shards)
            assert torch.equal(first["initial"], other["initial"])
            assert torch.equal(first["initial"], other["model"])

    def test_another_seed_is_another_world(self, experiment: Load, parts: Build) -> None:
        one, other = (parts(experiment(*MLP), "fedavg", seed) for seed in (1, 2))
        pairs = zip(device_numbers(one["devices"]), device_numbers(other["devices"]), strict=True)
        assert [np.array_equal(*pair) for pair in pairs] == [False, True, False, False]  # downloads are constant
        assert not same(one["workload"].shards, other["workload"].shards)
        assert not torch.equal(one["initial"], other["initial"])

    def test_every_part_gets_the_seed(self, experiment: Load, parts: Build) -> None:
        made = parts(experiment(), seed=7)
        assert made["coordinator"]["seed"] == made["workload"].seed == made["simulation"]["seed"] == 7


class TestArguments:
    def test_all_sections_arrive(self, experiment: Load, parts: Build, digits: Dataset, own: str) -> None:
        changes = ("server.max_staleness=0", "stop.versions=7", "stop.updates=8", "algorithms.fedbuff.local.steps=9")
        made = parts(experiment(*changes, f"model.loss={own}:hinge"), "fedbuff")
        assert made["algorithm"].buffer_size == 2
        coordinator, simulation, trainer = made["coordinator"], made["simulation"], made["trainer"]
        assert [coordinator[key] for key in ("clients", "lease_seconds", "max_staleness")] == [20, 30.0, 0]
        assert coordinator["local"].steps == trainer["plan"].steps == 9
        stop = simulation["stop"]
        assert (stop.virtual_seconds, stop.versions, stop.updates) == (60.0, 7, 8)
        assert (simulation["evaluate_every_seconds"], simulation["evaluate_every_versions"]) == (20.0, np.inf)
        assert made["workload"].objective.loss.__name__ == "hinge"
        assert made["workload"].augmentation is None

    def test_without_a_setting_there_is_no_limit(self, experiment: Load, parts: Build, tiny: dict[str, Any]) -> None:
        del tiny["population"]["lossy"], tiny["server"], tiny["stop"]["virtual_seconds"]
        tiny["stop"]["updates"] = 3
        made = parts(experiment("evaluate={ every_versions = 3 }", "data.augmentation=crop-and-flip"))
        assert made["workload"].augmentation == "crop-and-flip"
        stop = made["simulation"]["stop"]
        assert (stop.virtual_seconds, stop.versions, stop.updates) == (np.inf, np.inf, 3)
        assert (made["coordinator"]["lease_seconds"], made["coordinator"]["max_staleness"]) == (np.inf, None)
        evaluate = made["simulation"]
        assert (evaluate["evaluate_every_seconds"], evaluate["evaluate_every_versions"]) == (np.inf, 3)

    def test_clients_weigh_as_much_as_they_hold(self, experiment: Load, parts: Build) -> None:
        made = parts(experiment())
        weights = made["coordinator"]["data_weights"].tolist()
        assert weights == [len(shard) for shard in made["workload"].shards]
        assert len(set(weights)) > 5
        assert sum(weights) == 1433

    def test_sequential_sgd_has_one_client_with_all_data(self, experiment: Load, parts: Build) -> None:
        here = experiment("algorithms={ sequential_sgd = { cohort = 4 }, fedavg = {} }")
        made = parts(here, "sequential_sgd")
        (shard,) = made["workload"].shards
        assert shard.tolist() == list(range(1433))
        assert made["coordinator"]["clients"] == 1
        # Four times as fast as the same clients are on average.
        others = parts(here, "fedavg")["devices"]
        assert made["devices"].step_seconds.tolist() == [others.step_seconds.mean() / 4]

    @pytest.mark.parametrize(
        ("trainer", "mapped", "workers"), [("vmap", False, 3), ("vmap", True, 1), ("processes", True, 3)]
    )
    def test_data_on_disk_are_not_copied_to_other_processes(
        self, trainer: str, mapped: bool, workers: int, experiment: Load, digits: Dataset, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        asked: list[int] = []
        real = module.make_trainer
        monkeypatch.setattr(
            module,
            "make_trainer",
            lambda _, *given, **named: asked.append(named["workers"]) or real("loop", *given, **named),
        )
        np.save(tmp_path / "inputs", digits.train_inputs)
        on_disk = np.load(tmp_path / "inputs.npy", mmap_mode="r") if mapped else digits.train_inputs
        here = experiment(f"trainer={trainer}")
        build_simulation(here, "fedavg", 1, replace(digits, train_inputs=on_disk), workers=3).close()
        assert asked == [workers]

    @pytest.mark.parametrize("trainer", ["loop", "vmap"])
    @pytest.mark.parametrize("mode", ["r", "c"])
    def test_data_that_are_mapped_stay_on_disk(
        self, trainer: str, mode: str, experiment: Load, digits: Dataset, tmp_path: Path
    ) -> None:
        mapped: dict[str, Any] = {}
        for part in ("train_inputs", "train_labels", "test_inputs", "test_labels"):
            np.save(tmp_path / part, getattr(digits, part))
            mapped[part] = np.load(tmp_path / f"{part}.npy", mmap_mode=mode)
        here = experiment(f"trainer={trainer}")
        histories: list[Any] = []
        for given in (from_user(replace(digits, **mapped), "digits"), digits):
            simulation = build_simulation(here, "fedavg", 1, given)
            held = simulation.workload.train
            assert np.shares_memory(held.inputs.numpy(), given.train_inputs)
            assert np.shares_memory(held.labels.numpy(), given.train_labels)
            assert (held.inputs.data_ptr() == mapped["train_inputs"].ctypes.data) is (given is not digits)
            histories.append(list(simulation.run()))
        assert histories[0] == histories[1]


class TestFit:
    def test_is_tried_on_the_smallest_minibatch(self, experiment: Load, parts: Build) -> None:
        """Not on all the data, which a large model could not take at once."""
        made = parts(experiment("population.clients=100"))
        (model, loss, inputs, labels), named = made["check_fit"]
        assert len(inputs) == len(labels) == min(8, *map(len, made["workload"].shards)) < 8
        assert torch.equal(model.vector, made["initial"])
        assert loss is LOSSES["cross_entropy"]
        assert named == {"classes": 10, "tokens": None, "accelerator": CPU}
        made = parts(experiment('population.partition={ name = "iid" }'))
        assert len(made["check_fit"][0][2]) == 8

    @pytest.mark.parametrize(
        ("change", "fragments"),
        [
            ("model={ name = 'OWN:bare' }", ["labels go up to 9", "5 outputs"]),
            ("model.loss=OWN:per_example", ["the mean over the minibatch", "shape ()"]),
            ("algorithms.fedavg.cohort=21", ["algorithms.fedavg: ", "cohort", "20", "21"]),
        ],
    )
    def test_a_misfit_is_one_line(
        self, change: str, fragments: list[str], experiment: Load, parts: Build, own: str
    ) -> None:
        line = error_line(parts, experiment(change.replace("OWN", own)))
        assert all(fragment in line for fragment in fragments)

    def test_augmentation_needs_images(self, experiment: Load, tokens: Callable[[int], Dataset]) -> None:
        here = experiment("data.augmentation=crop-and-flip", *LSTM)
        with pytest.raises(OffbeatError, match=r"^data\.augmentation = .* int64 of shape \(5,\): leave it out$"):
            build_simulation(here, "fedasync", 1, tokens(11))

    def test_an_embedding_has_all_tokens(
        self, experiment: Load, tokens: Callable[[int], Dataset], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Also those that do not occur in the minibatch that is tried."""
        dataset, here = replace(tokens(11), tokens=50), experiment(*LSTM)
        build_simulation(here, "fedasync", 1, dataset)
        small = build_model(here.model, tokens(11), 1)
        monkeypatch.setattr("offbeat.worlds.workload.build_model", lambda *_: small)
        with pytest.raises(OffbeatError, match=r"entries 0 to 10.* called with index 49"):
            build_simulation(here, "fedasync", 1, dataset)


def test_a_random_pattern_draws_by_the_runs_seed(experiment: Load, digits: Dataset) -> None:
    table = "{ algorithm = 'async_comm_sgd', pattern = { name = 'random', p = 0.3 } }"
    here = experiment(f"algorithms.mine={table}")
    seeds = [
        build_simulation(here, "mine", seed, digits).coordinator.algorithm.pattern.parameters["seed"] for seed in (3, 4)
    ]
    assert seeds == [3, 4]


PLAN = LocalPlan(1, 1, 0.1)
SECTION = FlowerSection.model_validate({"app": "my_app:app"}, context={"folder": None})


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        (SCAFFOLD(), "scaffold corrects each local gradient: that is not possible with Flower's apps"),
        (FedLaAvg(), 'fedlaavg weighs all clients by their examples, .* set weighting = "uniform"'),
    ],
)
def test_an_algorithm_that_needs_more_is_refused(algorithm, message):
    with pytest.raises(OffbeatError, match=message):
        build_flower_backend(SECTION, None, algorithm, PLAN, 3)


def test_steps_that_depend_on_examples_are_refused():
    with pytest.raises(
        OffbeatError, match=r"^local: only the app knows how many examples a client holds: set local\.st"
    ):
        build_flower_backend(SECTION, None, FedBuff(), LocalPlan(1, 1, 0.1, steps_by=Epochs(2)), 3)


@pytest.mark.skipif(importlib.util.find_spec("flwr") is not None, reason="Flower is installed")
def test_without_flower_the_error_says_how_to_install_it():
    with pytest.raises(OffbeatError, match=r"\[flower\] needs Flower: pip install 'offbeat\[flower\]'"):
        build_flower_backend(SECTION, None, FedBuff(), PLAN, 3)
