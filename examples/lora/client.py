"""A client of the service that trains LoRA adapters on one user's sentences.

    offbeat join https://host:8443 --token-file enrolment-token --client examples/lora/client.py:make_client

It reads the model and the data from ``server.toml`` beside it. The base model's weights do not come from the server:
they are read from a folder, or fetched once from Hugging Face, and checked by their SHA-256.
"""

import tomllib
from pathlib import Path

import numpy as np
from lora_model import model
from sst2_users import data
from torch.nn.functional import cross_entropy

from offbeat.client import LocalSGD

SERVER_FILE = Path(__file__).with_name("server.toml")


def make_client(client: int) -> LocalSGD:
    """Return the client with this number, which the server gave it when it enrolled."""
    server = tomllib.loads(SERVER_FILE.read_text(encoding="utf-8"))
    dataset = data(**server["data"]["arguments"])  # a client of your own reads its own sentences here
    own = np.flatnonzero(dataset.users == client)
    return LocalSGD(
        model(**server["model"]["arguments"]), cross_entropy, (dataset.train_inputs[own], dataset.train_labels[own])
    )
