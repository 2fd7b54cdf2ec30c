"""The clients of an experiment, ready to be drawn."""

import numpy as np

from offbeat.config.experiment_file import Experiment
from offbeat.report.population.table import PopulationView
from offbeat.worlds.population import build_population
from offbeat.worlds.simulation import build_dataset, build_model

_DAY = 86_400.0
_BYTES_A_PARAMETER = 4


def view_population(experiment: Experiment) -> PopulationView:
    """Return the clients of the experiment's first seed, up to its end; up to a day where that is not given in seconds.

    Raises:
        OffbeatError: The data cannot be had or cannot be divided like that, or a file of the population is wrong.
    """
    dataset, seed = build_dataset(experiment.data), experiment.seeds[0]
    population = build_population(experiment.population, dataset, seed)
    counts = None
    if dataset.classes is not None:
        labels = [np.bincount(dataset.train_labels[shard], minlength=dataset.classes) for shard in population.shards]
        counts = np.array(labels, np.int64)
    devices = population.devices
    return PopulationView(
        title=experiment.name,
        seed=seed,
        label_counts=counts,
        examples=np.array([len(shard) for shard in population.shards], np.int64),
        steps=experiment.local.steps,
        step_seconds=devices.step_seconds,
        down_bytes_per_second=devices.down.mean_bytes_per_second(),
        up_bytes_per_second=devices.up.mean_bytes_per_second(),
        model_bytes=_BYTES_A_PARAMETER * build_model(experiment.model, dataset, seed).vector.numel(),
        loss_probability=devices.loss_probability,
        availability=devices.availability,
        horizon_seconds=experiment.stop.virtual_seconds or _DAY,
    )
