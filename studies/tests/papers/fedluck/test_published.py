"""The published experiments' devices, data and models are those of the authors' code."""

import csv

import pytest
import torch

from offbeat.algorithms import FedLuck
from offbeat.algorithms.fedluck_choice import best_steps_and_compression
from offbeat.config.algorithm_table import build_algorithm
from offbeat.data.catalogue import load_dataset
from offbeat_studies.papers.fedluck import published
from studies.tests.papers.conftest import EXPERIMENTS


def test_each_client_of_fashion_mnist_gets_the_k_and_delta_of_the_authors_code(own_figures):
    figure = own_figures["fedluck/fashion-iid"]
    fedluck = build_algorithm("fedluck", figure.experiment("full").algorithms["fedluck"].hyper_parameters)
    assert isinstance(fedluck, FedLuck)
    size = 4 * sum(parameter.numel() for parameter in published.cnn().parameters())
    choices = []
    with (EXPERIMENTS / "fedluck" / "fashion_devices.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            alpha, beta = float(row["step_seconds"]), size / float(row["up_bytes_per_second"])
            k, delta = best_steps_and_compression(
                alpha, beta, fedluck.period, fedluck.steps, fedluck.compression, fedluck.compression_exponent
            )
            choices.append((k, round(delta, 2)))
    # As the authors' code prints them.
    assert choices == [
        (3, 0.07), (3, 0.02), (4, 0.11), (4, 0.12), (5, 0.14), (6, 0.16), (24, 1.0), (26, 1.0), (31, 1.0), (39, 1.0)
    ]  # fmt: skip


@pytest.mark.parametrize(("model", "channels", "parameters"), [("cnn", 1, 234_090), ("vgg11", 3, 865_482)])
def test_models(model, channels, parameters):
    network = getattr(published, model)()
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters
    assert network(torch.randn(2, channels, 32, 32)).shape == (2, 10)


@pytest.mark.long
def test_fashion_mnist_is_larger_and_shorter(real_data):
    real_data("fashion-mnist", "train-images-idx3-ubyte.gz")
    found, whole = published.fashion_mnist(), load_dataset("fashion-mnist")
    assert found.train_inputs.shape == (48_000, 1, 32, 32)
    assert found.test_inputs.shape == (1_000, 1, 32, 32)
    assert found.train_labels[:8].tolist() == whole.train_labels[[0, 1, 2, 3, 5, 6, 7, 8]].tolist()
    assert found.test_labels[:3].tolist() == whole.test_labels[[0, 10, 20]].tolist()
    # An image keeps its place and its mean; the darkest pixel is 0 in MNIST's scale.
    assert found.train_inputs.min() == pytest.approx(-0.1307 / 0.3081)
    pixels = whole.train_inputs[0].mean() * 0.3530 + 0.2860
    assert found.train_inputs[0].mean() * 0.3081 + 0.1307 == pytest.approx(pixels, abs=0.005)


@pytest.mark.long
def test_cifar10_is_shorter(real_data):
    real_data("cifar10", "cifar10-jpeg.tar.gz")
    found, whole = published.cifar10(), load_dataset("cifar10")
    assert found.train_inputs.shape == (40_000, 3, 32, 32)
    assert found.test_labels.tolist() == whole.test_labels[::10].tolist()


@pytest.mark.parametrize(
    ("name", "steps", "band", "batch_size", "period", "server_lr", "fixed", "others"),
    [
        ("fashion", (0.4, 0.1), (0.25, 0.03), 64, 1.5, 0.7, (10, 0.3), {"fedavg": 20, "fedbuff": 20, "fedasync": 13}),
        ("cifar10", (0.6, 0.15), (0.25, 0.03), 32, 3.0, 1.0, (8, 0.1), {"fedavg": 13, "fedbuff": 13, "fedasync": 20}),
    ],
)
def test_settings_of_run_py(name, steps, band, batch_size, period, server_lr, fixed, others, own_figures):
    found = own_figures[f"fedluck/{name}-dirichlet"].experiment("full")
    with (EXPERIMENTS / "fedluck" / f"{name}_devices.csv").open(encoding="utf-8") as file:
        devices = [(float(row["step_seconds"]), float(row["up_bytes_per_second"])) for row in csv.DictReader(file)]
    assert (devices[0][0], devices[-1][0]) == steps  # the slowest and the fastest
    assert (round(devices[-1][1] / 2**20, 3), round(devices[1][1] / 2**20, 3)) == band  # the fastest and the straggler
    assert (found.local.batch_size, found.local.lr, found.local.momentum) == (batch_size, 0.01, 0.9)
    for label in ("fedluck", "periodic"):
        settings = found.algorithms[label].hyper_parameters
        assert (settings["period"], settings["server_lr"], settings["weighting"]) == (period, server_lr, "examples")
    periodic = found.algorithms["periodic"].hyper_parameters
    assert (periodic["steps"], periodic["compression"]) == ([fixed[0]] * 2, [fixed[1]] * 2)
    assert {label: found.algorithms[label].local["steps"] for label in others} == others
    fedbuff, fedasync = (found.algorithms[label].hyper_parameters for label in ("fedbuff", "fedasync"))
    assert (fedbuff["buffer_size"], fedbuff["server_lr"], fedasync["mixing_alpha"]) == (8, server_lr, 0.4)
