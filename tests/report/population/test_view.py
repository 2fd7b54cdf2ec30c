from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from offbeat.config.experiment_file import Experiment
from offbeat.data.dataset import Dataset
from offbeat.errors import OffbeatError
from offbeat.report.population.view import view_population
from offbeat.worlds.population import build_population


def test_shows_the_population_of_the_first_seed(experiment: Callable[..., Experiment], digits: Dataset) -> None:
    here = experiment("seeds=[7, 1]", "local.steps=9")
    view = view_population(here)
    population = build_population(here.population, digits, 7)
    assert (view.title, view.seed, view.steps) == ("tiny", 7, 9)
    assert view.examples.tolist() == [len(shard) for shard in population.shards]
    assert view.label_counts is not None
    assert view.label_counts.shape == (20, 10)
    assert view.label_counts.sum(axis=0).tolist() == np.bincount(digits.train_labels).tolist()
    assert view.label_counts[3].tolist() == [
        int((digits.train_labels[population.shards[3]] == label).sum()) for label in range(10)
    ]
    devices = population.devices
    assert view.step_seconds.tolist() == devices.step_seconds.tolist()
    assert view.down_bytes_per_second.tolist() == [1e5] * 20
    assert view.up_bytes_per_second.tolist() == devices.up.mean_bytes_per_second().tolist()
    assert view.loss_probability.tolist() == devices.loss_probability.tolist()
    assert view.model_bytes == 4 * 650
    assert view.horizon_seconds == 60.0


def test_who_is_there_when(experiment: Callable[..., Experiment]) -> None:
    view = view_population(experiment("population.availability={ name = 'alternating', period_seconds = 7.0 }"))
    assert view.availability.next_available(1, 0.0) == 7.0


def test_without_an_end_in_seconds_a_day(experiment: Callable[..., Experiment]) -> None:
    assert view_population(experiment("stop={ versions = 3 }")).horizon_seconds == 24 * 3600


def test_without_classes_there_are_no_label_counts(
    experiment: Callable[..., Experiment], monkeypatch: pytest.MonkeyPatch, digits: Dataset
) -> None:
    def load(_: Any) -> Dataset:
        targets = digits.train_labels.astype(np.float32), digits.test_labels.astype(np.float32)
        return Dataset("targets", digits.train_inputs, targets[0], digits.test_inputs, targets[1], None)

    monkeypatch.setattr("offbeat.report.population.view.build_dataset", load)
    view = view_population(experiment("model.loss=mse", "population.partition={ name = 'iid' }"))
    assert view.label_counts is None
    assert view.model_bytes == 4 * 65


def test_what_is_wrong_names_the_key(experiment: Callable[..., Experiment]) -> None:
    with pytest.raises(OffbeatError, match=r"population\.partition: 1434 clients"):
        view_population(experiment("population.clients=1434"))
