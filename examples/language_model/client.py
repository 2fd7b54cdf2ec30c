"""A client of the service that trains the language model on one user's sentences.

    offbeat join https://host:8443 --token-file enrolment-token --client examples/language_model/client.py:make_client

It reads the model and the data from ``server.toml`` beside it, and keeps every fifth sentence to evaluate.
"""

import tomllib
from pathlib import Path

import numpy as np
from causal_model import model
from letters import data

from offbeat.client import LocalSGD

SERVER_FILE = Path(__file__).with_name("server.toml")


def make_client(client: int) -> LocalSGD:
    """Return the client with this number, which the server gave it when it enrolled."""
    server = tomllib.loads(SERVER_FILE.read_text(encoding="utf-8"))
    dataset = data(**server["data"]["arguments"])  # a client of your own reads its own sentences here
    own = np.flatnonzero(dataset.users == client)
    is_held_out = np.arange(len(own)) % 5 == 4

    def examples(rows):
        return {"input_ids": dataset.train_inputs["input_ids"][rows]}, dataset.train_labels[rows]

    module = model(**server["model"].get("arguments", {}))
    return LocalSGD(module, "model", examples(own[~is_held_out]), held_out=examples(own[is_held_out]))
