"""A demo's client, as ``offbeat join`` makes it."""

import os
from pathlib import Path

from offbeat.cli.demo.processes import FILE_VARIABLE
from offbeat.client import LocalSGD
from offbeat.config.server_file import load
from offbeat.model_inputs import map_inputs
from offbeat.population import partition
from offbeat.training.objectives import LOSSES
from offbeat.worlds.workload import build_dataset, build_model

_ALPHA = 1.0  # of the Dirichlet partition: clearly uneven classes


def make_client(client: int) -> LocalSGD:
    """Return a client with its share of the data."""
    file = load(Path(os.environ[FILE_VARIABLE]))
    assert file.data is not None
    dataset = build_dataset(file.data)
    share = partition.dirichlet(dataset.train_labels, file.service.clients, _ALPHA, file.service.seed)[client]
    model = build_model(file.model, dataset, file.service.seed).module
    inputs = map_inputs(lambda part: part[share], dataset.train_inputs)
    return LocalSGD(model, LOSSES[str(file.model.loss)], (inputs, dataset.train_labels[share]))
