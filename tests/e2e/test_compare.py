"""Whole runs, on scikit-learn's digits: from a TOML file to what `offbeat compare` leaves behind."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy

from offbeat.config import experiment_file
from offbeat.coordinator import Coordinator
from offbeat.data.catalogue import load_dataset
from offbeat.report.collect import collect
from offbeat.report.summary import summarise
from offbeat.runs import directory as run_directory
from offbeat.runs.run_all import run_all
from offbeat.worlds.simulation import build_simulation

CHANGES = (
    "local.batch_size=5",
    "population.step_seconds={ distribution = 'pareto', minimum = 0.5, shape = 1.5 }",
    "population.down_bytes_per_second={ distribution = 'lognormal', median = 1e4, sigma = 0.5 }",
    "population.up_bytes_per_second={ distribution = 'lognormal', median = 5e3, sigma = 0.5 }",
    "server={ lease_seconds = 20.0, max_staleness = 20 }",
    "algorithms.fedavg.over_selection=1.5",
    "algorithms.fedasync.concurrency=6",
    "algorithms.fedbuff={ buffer_size = 3, concurrency = 6 }",
    "stop.virtual_seconds=120.0",
    "evaluate.every_seconds=10.0",
)


@pytest.fixture
def experiment(tmp_path, tiny_toml):
    path = tmp_path / "small.toml"
    path.write_text(tiny_toml)
    return lambda *changes: experiment_file.load(path, (*CHANGES, *changes))


def simulate(experiment, label, seed=1):
    dataset = load_dataset(experiment.data.name)
    return build_simulation(experiment, label, seed, dataset)


@pytest.mark.parametrize("label", ["fedavg", "fedasync", "fedbuff"])
def test_a_real_run_learns_and_its_calls_make_the_same_model_again(label, experiment):
    settings = experiment()
    simulation = simulate(settings, label)
    calls = []
    simulation.coordinator.record = calls.append
    accuracies = [evaluation.metrics["accuracy"] for evaluation in simulation.run()]
    assert accuracies[-1] > 0.75 > 0.2 > accuracies[0]

    replayed = Coordinator(
        settings.algorithm(label),
        torch.zeros(65 * 10),  # softmax regression starts at zero
        clients=20,
        local=settings.plan(label),
        seed=1,
        lease_seconds=20.0,
        max_staleness=20,
    )
    for call in calls:
        replayed.replay(call)
    assert torch.equal(replayed.algorithm.model, simulation.model)
    assert replayed.statistics == simulation.coordinator.statistics


def test_fedavg_with_everybody_and_one_full_batch_step_is_gradient_descent_on_all_data(experiment):
    settings = experiment(
        "algorithms={ fedavg = { cohort = 20 } }",
        "local={ steps = 1, batch_size = 100000, lr = 0.5 }",
        "stop={ versions = 5 }",
        "population.lossy={ fraction = 0.0, probability = 0.0 }",
    )
    simulation = simulate(settings, "fedavg")
    for _ in simulation.run():
        pass

    dataset = load_dataset("digits")
    inputs, labels = torch.from_numpy(dataset.train_inputs).flatten(1), torch.from_numpy(dataset.train_labels)
    weight, bias = torch.zeros(10, 64, requires_grad=True), torch.zeros(10, requires_grad=True)
    for _ in range(5):
        gradients = torch.autograd.grad(cross_entropy(inputs @ weight.T + bias, labels), (weight, bias))
        with torch.no_grad():
            weight -= 0.5 * gradients[0]
            bias -= 0.5 * gradients[1]
    centralised = torch.cat([weight.detach().flatten(), bias.detach()])
    assert simulation.coordinator.algorithm.version == 5
    torch.testing.assert_close(simulation.model, centralised, atol=1e-6, rtol=1e-5)


def test_the_books_of_a_run_agree_with_each_other(experiment, progress, tmp_path):
    settings = experiment()
    for run in run_all(settings, list(settings.algorithms), tmp_path / "out", progress(settings)):
        events, last = run.events, {name: column[-1] for name, column in run.history.items()}
        counted = events["outcome"] == "counted"
        assert last["counted"] == counted.sum() > 50
        assert last["unused"] == (events["outcome"] == "unused").sum()
        assert last["lost"] == (events["outcome"] == "lost").sum() > 0
        assert last["bytes_up"] == events["bytes_up"].sum() == 2600 * (events["bytes_up"] > 0).sum()
        assert last["seconds"] == 120.0
        assert np.all(np.diff(events["ended_seconds"]) >= 0)
        assert np.nanmax(events["staleness"][counted]) <= 20
        # Nobody does two things at once, and each visit of a client is one row.
        for client in range(20):
            mine = events["client"] == client
            assert events["visit"][mine].tolist() == list(range(mine.sum()))
            assert np.all(events["assigned_seconds"][mine][1:] >= events["ended_seconds"][mine][:-1])
        model = load_file(run.path / "model.safetensors")
        assert {name: tuple(tensor.shape) for name, tensor in model.items()} == {"1.weight": (10, 64), "1.bias": (10,)}
        assert run_directory.read(run.path).label == run.label


def test_evaluations_by_versions_do_not_change_a_run(experiment, progress, tmp_path):
    def runs_of(folder, *changes):
        settings = experiment("seeds=[1, 2]", *changes)
        run_all(settings, ["fedavg", "fedasync"], tmp_path / folder, progress(settings))
        return collect([tmp_path / folder])

    by_versions = runs_of("versions", "evaluate={ every_versions = 4, target = 0.3 }")
    by_seconds = runs_of("seconds", "evaluate.target=0.3")
    for run, other in zip(by_versions, by_seconds, strict=True):
        *most, last = run.history["version"].tolist()
        assert most == list(range(0, last + 1, 4))
        assert {name: column[-1] for name, column in run.history.items()} == {
            name: column[-1] for name, column in other.history.items()
        }
        for name, column in other.events.items():
            np.testing.assert_array_equal(run.events[name], column)
    for row, runs in zip(summarise(by_versions), (by_versions[:2], by_versions[2:]), strict=True):
        reached = [run.history["seconds"][run.history["accuracy"] >= 0.3][0] for run in runs]
        assert row.seconds_to_target.mean == np.mean(reached)
