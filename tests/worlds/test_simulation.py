from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from offbeat.config.experiment_file import Experiment
from offbeat.data.dataset import Dataset
from offbeat.data.user_data import from_user
from offbeat.errors import OffbeatError
from offbeat.training.objectives import LOSSES, METRICS
from offbeat.worlds import simulation as world
from offbeat.worlds.simulation import build_dataset, build_model, build_objective, build_simulation


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

    for name in ("Coordinator", "make_trainer", "Evaluator", "Simulation"):
        spy(name)

    def build(experiment: Experiment, label: str, seed: int) -> dict[str, Any]:
        seen.clear()
        model = build_model(experiment.model, digits, seed)
        initial = model.vector.clone()
        simulation = build_simulation(experiment, label, seed, digits, model, build_objective(experiment))
        return {
            "initial": initial,
            "model": simulation.model,
            "shards": seen["make_trainer"][1]["shards"],
            "devices": seen["Simulation"][0][1],
            "simulation": seen["Simulation"][1],
            "coordinator": seen["Coordinator"],
            "evaluator": seen["Evaluator"][1],
            "trainer": seen["make_trainer"][1],
        }

    return build


def same_devices(one: Any, other: Any) -> bool:
    return all(map(np.array_equal, numbers(one), numbers(other)))


def numbers(devices: Any) -> list[Any]:
    return [
        devices.step_seconds,
        devices.down.mean_bytes_per_second(),
        devices.up.mean_bytes_per_second(),
        devices.loss_probability,
    ]


def tokens(count: int) -> Dataset:
    inputs, labels = np.arange(20, dtype=np.int64).reshape(4, 5) % count, np.array([0, 1, 0, 1], np.int64)
    return Dataset("words", inputs, labels, inputs, labels, classes=2, tokens=count)


def same_shards(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(map(np.array_equal, one, other))


MLP = ("model.name=mlp", "model.hidden=[5]")

OWN = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width=3):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))

    def forward(self, inputs):
        return self.layers(inputs)

def bare():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 5))

def normed():
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 10))

def number():
    return 3

def data(examples=30):
    inputs = torch.randn(examples, 1, 8, 8, generator=torch.Generator().manual_seed(7))
    labels = torch.arange(examples) % 10
    pair = torch.utils.data.TensorDataset(inputs, labels)
    return pair, pair

def hinge(outputs, labels):
    return nn.functional.multi_margin_loss(outputs, labels)

def per_example(outputs, labels):
    return nn.functional.cross_entropy(outputs, labels, reduction="none")

def top_two(outputs, labels):
    return (outputs.topk(2).indices == labels[:, None]).any(dim=1).float().mean()
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    """The path of a file with code of the user's own."""
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return str(path)


class TestDataset:
    def test_a_built_in_one(self, experiment: Callable[..., Experiment], digits: Dataset) -> None:
        dataset = build_dataset(experiment().data)
        assert dataset.name == "digits"
        assert np.array_equal(dataset.train_inputs, digits.train_inputs)

    def test_of_the_users_own_with_its_arguments(self, experiment: Callable[..., Experiment], own: str) -> None:
        dataset = build_dataset(experiment(f"data.name={own}:data", "data.arguments={ examples = 50 }").data)
        assert dataset.name == f"{Path(own).resolve()}:data"
        assert dataset.train_labels.tolist() == [*range(10)] * 5
        assert dataset.classes == 10


class TestObjective:
    def test_built_in(self, experiment: Callable[..., Experiment]) -> None:
        objective = build_objective(experiment("model.loss=bce", "evaluate.metrics=['mae', 'accuracy']"))
        assert objective.loss is LOSSES["bce"]
        assert list(objective.metrics) == ["mae", "accuracy"]
        assert objective.metrics["mae"] is METRICS["mae"].function

    def test_of_the_users_own(self, experiment: Callable[..., Experiment], own: str) -> None:
        objective = build_objective(experiment(f"model.loss={own}:hinge", f"evaluate.metrics=['{own}:top_two', 'mae']"))
        outputs, labels = torch.tensor([[1.0, 0.0, 3.0], [0.0, 2.0, 1.0]]), torch.tensor([0, 0])
        assert objective.loss(outputs, labels).item() == pytest.approx((3 / 3 + 5 / 3) / 2)
        assert list(objective.metrics) == ["top_two", "mae"]
        assert objective.metrics["top_two"](outputs, labels) == 0.5

    @pytest.mark.parametrize(
        ("change", "key"), [("model.loss={}:hing", "model.loss"), ("evaluate.metrics=['{}:top']", "evaluate.metrics")]
    )
    def test_what_is_not_there_names_the_key(
        self, change: str, key: str, experiment: Callable[..., Experiment], own: str
    ) -> None:
        with pytest.raises(OffbeatError, match=rf"^{key}: .*own\.py:.*there is no"):
            build_objective(experiment(change.format(own)))


class TestModel:
    def test_of_the_users_own_with_its_arguments(
        self, experiment: Callable[..., Experiment], digits: Dataset, own: str
    ) -> None:
        here = experiment(f"model={{ name = '{own}:Net', arguments = {{ width = 4 }} }}")
        one, again, other = (build_model(here.model, digits, seed).vector for seed in (1, 1, 2))
        assert one.shape == (64 * 4 + 4 + 4 * 10 + 10,)
        assert torch.equal(one, again)
        assert not torch.equal(one, other)

    @pytest.mark.parametrize(
        ("model", "parameters"),
        [
            ("{ name = 'cnn' }", 32 * 9 + 32 + 64 * 32 * 9 + 64 + 64 * 64 * 9 + 64 + 64 * 4 * 64 + 64 + 650),
            ("{ name = 'mlp' }", 64 * 128 + 128 + 1290),
        ],
    )
    def test_built_in(
        self, model: str, parameters: int, experiment: Callable[..., Experiment], digits: Dataset
    ) -> None:
        assert build_model(experiment(f"model={model}").model, digits, 1).vector.shape == (parameters,)

    def test_resnet(self, experiment: Callable[..., Experiment], digits: Dataset) -> None:
        model = build_model(experiment("model={ name = 'resnet18' }").model, digits, 1)
        assert model.module(torch.from_numpy(digits.test_inputs[:2])).shape == (2, 10)

    def test_lstm_takes_the_datas_tokens(self, experiment: Callable[..., Experiment]) -> None:
        model = build_model(experiment("model={ name = 'lstm', hidden = 3, embedding = 4 }").model, tokens(11), 1)
        assert model.named(model.vector)["embedding.weight"].shape == (11, 4)
        assert model.module(torch.zeros(2, 5, dtype=torch.int64)).shape == (2, 2)

    def test_targets_are_as_many_as_outputs(self, experiment: Callable[..., Experiment]) -> None:
        values = np.zeros((4, 3), np.float32)
        dataset = Dataset(
            "numbers", values, np.zeros((4, 2, 3), np.float32), values, np.zeros((4, 2, 3), np.float32), None
        )
        assert build_model(experiment().model, dataset, 1).module(torch.zeros(1, 3)).shape == (1, 6)

    @pytest.mark.parametrize(
        ("model", "dataset", "problem"),
        [("lstm", "digits", "no tokens"), ("mlp", "tokens", "tokens"), ("cnn", "tokens", "tokens")],
    )
    def test_tokens_and_pictures_are_not_mixed(
        self, model: str, dataset: str, problem: str, experiment: Callable[..., Experiment], digits: Dataset
    ) -> None:
        with pytest.raises(OffbeatError, match=rf"model\.name = '{model}': \w+ holds {problem}; take another model"):
            build_model(
                experiment(f"model={{ name = '{model}' }}").model, digits if dataset == "digits" else tokens(11), 1
            )

    def test_batch_norm_is_refused_or_local(
        self, experiment: Callable[..., Experiment], digits: Dataset, own: str
    ) -> None:
        model = f"model={{ name = '{own}:normed' }}"
        with pytest.raises(OffbeatError, match=r"model\.batch_norm = \"local\""):
            build_model(experiment(model).model, digits, 1)
        assert build_model(experiment(model, "model.batch_norm=local").model, digits, 1).vector.shape == (2 * 64 + 650,)

    def test_of_the_users_own_must_be_a_module(
        self, experiment: Callable[..., Experiment], digits: Dataset, own: str
    ) -> None:
        with pytest.raises(OffbeatError, match=r"model\.name: .*own\.py:number made a int, not a torch\.nn\.Module"):
            build_model(experiment(f"model={{ name = '{own}:number' }}").model, digits, 1)

    def test_softmax(self, experiment: Callable[..., Experiment], digits: Dataset) -> None:
        model = build_model(experiment().model, digits, 1)
        assert model.vector.shape == (64 * 10 + 10,)
        assert not model.vector.any()

    def test_mlp_with_its_hidden_units(self, experiment: Callable[..., Experiment], digits: Dataset) -> None:
        model = build_model(experiment("model.name=mlp", "model.hidden=[5, 3]").model, digits, 1)
        assert model.vector.shape == (64 * 5 + 5 + 5 * 3 + 3 + 3 * 10 + 10,)
        assert model.module(torch.from_numpy(digits.test_inputs[:7])).shape == (7, 10)

    def test_comes_from_the_seed(self, experiment: Callable[..., Experiment], digits: Dataset) -> None:
        one, again, other = (build_model(experiment(*MLP).model, digits, seed).vector for seed in (1, 1, 2))
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
        (step, _, up, lossy), (other_step, _, other_up, other_lossy) = (
            numbers(one["devices"]),
            numbers(other["devices"]),
        )
        assert not np.array_equal(step, other_step)
        assert not np.array_equal(up, other_up)
        assert not np.array_equal(lossy, other_lossy)
        assert not same_shards(one["shards"], other["shards"])
        assert not torch.equal(one["initial"], other["initial"])

    def test_every_part_gets_the_runs_seed(
        self, experiment: Callable[..., Experiment], built: Callable[..., dict[str, Any]]
    ) -> None:
        parts = built(experiment(), "fedavg", 7)
        assert parts["coordinator"][1]["seed"] == parts["trainer"]["seed"] == parts["simulation"]["seed"] == 7

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
        assert parts["simulation"]["evaluate_every_versions"] == np.inf
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

    def test_evaluations_by_version(
        self, experiment: Callable[..., Experiment], built: Callable[..., dict[str, Any]]
    ) -> None:
        simulation = built(experiment("evaluate={ every_versions = 3 }"), "fedavg", 1)["simulation"]
        assert (simulation["evaluate_every_seconds"], simulation["evaluate_every_versions"]) == (np.inf, 3)

    def test_the_augmentation_arrives(
        self, experiment: Callable[..., Experiment], built: Callable[..., dict[str, Any]]
    ) -> None:
        assert built(experiment(), "fedavg", 1)["trainer"]["augmentation"] is None
        here = experiment("data.augmentation=crop-and-flip")
        assert built(here, "fedavg", 1)["trainer"]["augmentation"] == "crop-and-flip"

    def test_augmentation_is_for_images(self, experiment: Callable[..., Experiment]) -> None:
        changes = ("model.name=lstm", "population={ clients = 2 }", "algorithms={ fedasync = { concurrency = 2 } }")
        here = experiment("data.augmentation=crop-and-flip", *changes)
        model = build_model(here.model, tokens(11), 1)
        with pytest.raises(OffbeatError, match=r"^data\.augmentation = .* int64 of shape \(5,\): leave it out$"):
            build_simulation(here, "fedasync", 1, tokens(11), model, build_objective(here))

    @pytest.mark.parametrize("trainer", ["loop", "vmap"])
    @pytest.mark.parametrize("mode", ["r", "c"])
    def test_data_that_are_mapped_stay_on_disk(
        self, trainer: str, mode: str, experiment: Callable[..., Experiment], digits: Dataset, tmp_path: Path
    ) -> None:
        mapped: dict[str, Any] = {}
        for part in ("train_inputs", "train_labels", "test_inputs", "test_labels"):
            np.save(tmp_path / part, getattr(digits, part))
            mapped[part] = np.load(tmp_path / f"{part}.npy", mmap_mode=mode)
        here = experiment(f"trainer={trainer}")
        histories: list[Any] = []
        for given in (from_user(replace(digits, **mapped), "digits"), digits):
            simulation = build_simulation(
                here, "fedavg", 1, given, build_model(here.model, digits, 1), build_objective(here)
            )
            held: Any = simulation._trainer
            assert np.shares_memory(held._inputs.numpy(), given.train_inputs)
            assert np.shares_memory(held._labels.numpy(), given.train_labels)
            assert (held._inputs.data_ptr() == mapped["train_inputs"].ctypes.data) is (given is not digits)
            histories.append(list(simulation.run()))
        assert histories[0] == histories[1]

    def test_an_embedding_must_have_all_tokens(self, experiment: Callable[..., Experiment]) -> None:
        """Also those that the few examples which are tried do not show."""
        dataset = replace(tokens(11), tokens=50)
        changes = ("model.name=lstm", "population={ clients = 2 }", "algorithms={ fedasync = { concurrency = 2 } }")
        here = experiment(*changes)
        objective = build_objective(here)
        with pytest.raises(OffbeatError, match=r"entries 0 to 10.* asked for number 49"):
            build_simulation(here, "fedasync", 1, dataset, build_model(here.model, tokens(11), 1), objective)
        build_simulation(here, "fedasync", 1, dataset, build_model(here.model, dataset, 1), objective)

    def test_the_loss_and_the_metrics_arrive(
        self, experiment: Callable[..., Experiment], built: Callable[..., dict[str, Any]], own: str
    ) -> None:
        parts = built(experiment(f"model.loss={own}:hinge", f"evaluate.metrics=['{own}:top_two']"), "fedavg", 1)
        assert parts["trainer"]["loss"].__name__ == parts["evaluator"]["loss"].__name__ == "hinge"
        assert {name: metric.__name__ for name, metric in parts["evaluator"]["metrics"].items()} == {
            "top_two": "top_two"
        }

    def test_model_and_data_are_tried_on_what_one_client_has(
        self,
        experiment: Callable[..., Experiment],
        built: Callable[..., dict[str, Any]],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Not on all the data, which a large model could not take at once."""
        tried: list[Any] = []
        monkeypatch.setattr(world, "check_fit", lambda *given, **named: tried.append((given, named)))
        parts = built(experiment("population.clients=100"), "fedavg", 1)
        ((_, loss, inputs, labels), named) = tried[0]
        smallest = min(map(len, parts["shards"]))
        assert len(inputs) == len(labels) == min(smallest, 8)
        assert loss is LOSSES["cross_entropy"]
        assert named == {"classes": 10, "tokens": None}
        built(experiment('population.partition={ name = "iid" }'), "fedavg", 1)
        assert len(tried[1][0][2]) == 8  # a minibatch

    @pytest.mark.parametrize(
        ("change", "parts"),
        [
            ("model={{ name = '{}:bare' }}", ["labels go up to 9", "5 outputs"]),
            ("model.loss={}:per_example", ["the mean over the minibatch", "shape ()"]),
        ],
    )
    def test_model_loss_and_data_must_fit(
        self,
        change: str,
        parts: list[str],
        experiment: Callable[..., Experiment],
        built: Callable[..., dict[str, Any]],
        own: str,
    ) -> None:
        with pytest.raises(OffbeatError) as caught:
            built(experiment(change.format(own)), "fedavg", 1)
        assert all(part in str(caught.value) for part in parts)

    @pytest.mark.parametrize(
        ("change", "parts"),
        [
            ("algorithms.fedavg.cohort=21", ["algorithms.fedavg: ", "cohort", "20", "21"]),
            ("population.clients=1434", ["population.partition: ", "1434 clients", "1433"]),
        ],
    )
    def test_what_does_not_fit_is_one_line(
        self, change: str, parts: list[str], experiment: Callable[..., Experiment], digits: Dataset
    ) -> None:
        here = experiment(change)
        with pytest.raises(OffbeatError) as caught:
            build_simulation(here, "fedavg", 1, digits, build_model(here.model, digits, 1), build_objective(here))
        line = str(caught.value)
        assert "\n" not in line
        assert all(part in line for part in parts)


class TestShares:
    def test_clients_weigh_as_much_as_they_hold(
        self, experiment: Callable[..., Experiment], built: Callable[..., dict[str, Any]]
    ) -> None:
        parts = built(experiment(), "fedavg", 1)
        weights = parts["coordinator"][1]["data_weights"].tolist()
        assert weights == [len(shard) for shard in parts["shards"]]
        assert len(set(weights)) > 5
        assert sum(weights) == 1433

    def test_sequential_sgd_is_one_client_with_everybodys_data(
        self, experiment: Callable[..., Experiment], built: Callable[..., dict[str, Any]]
    ) -> None:
        here = experiment("algorithms={ sequential_sgd = { cohort = 4 }, fedavg = {} }")
        parts = built(here, "sequential_sgd", 1)
        (shard,) = parts["shards"]
        assert shard.tolist() == list(range(1433))
        assert parts["coordinator"][1]["clients"] == 1
        # Four times as fast as the same clients are on average.
        others = built(here, "fedavg", 1)["devices"]
        assert parts["devices"].step_seconds.tolist() == [others.step_seconds.mean() / 4]
