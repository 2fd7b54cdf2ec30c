"""A client of the demo: what ``offbeat join`` runs in each of its processes."""

import os
from pathlib import Path

from offbeat.config.server_file import load
from offbeat.population import partition
from offbeat.service.client import LocalSGD
from offbeat.training.objectives import LOSSES
from offbeat.worlds.simulation import build_dataset, build_model

FILE = "OFFBEAT_DEMO_FILE"
"""The environment variable that names the server's file."""

ALPHA = 1.0
"""Of the Dirichlet distribution by which classes are dealt out to clients: clearly uneven."""


def make_client(client: int) -> LocalSGD:
    """Return the client with this number, with its share of the data set that the server's file names.

    Raises:
        OffbeatError: The file or the data cannot be read.
        MissingDataError: There are no data.
    """
    file = load(Path(os.environ[FILE]))
    assert file.data is not None
    dataset = build_dataset(file.data)
    share = partition.dirichlet(dataset.train_labels, file.service.clients, ALPHA, file.service.seed)[client]
    model = build_model(file.model, dataset, file.service.seed).module
    return LocalSGD(model, LOSSES[file.model.loss], (dataset.train_inputs[share], dataset.train_labels[share]))
