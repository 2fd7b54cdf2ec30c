"""A client of the service that trains the U-Net on one user's pictures.

    offbeat join https://host:8443 --token-file enrolment-token --client examples/segmentation/client.py:make_client

It keeps every fifth picture to evaluate.
"""

import tomllib
from pathlib import Path

import numpy as np
from shapes import UNet, data, loss

from offbeat.client import LocalSGD

SERVER_FILE = Path(__file__).with_name("server.toml")


def make_client(client: int) -> LocalSGD:
    """Return the client with this number, which the server gave it when it enrolled."""
    server = tomllib.loads(SERVER_FILE.read_text(encoding="utf-8"))
    dataset = data(**server["data"]["arguments"])  # a client of your own reads its own pictures here
    own = np.flatnonzero(dataset.users == client)
    is_held_out = np.arange(len(own)) % 5 == 4
    train, test = own[~is_held_out], own[is_held_out]
    return LocalSGD(
        UNet(),
        loss,
        (dataset.train_inputs[train], dataset.train_labels[train]),
        held_out=(dataset.train_inputs[test], dataset.train_labels[test]),
    )
