"""A site: it trains the model on its own data."""

import torch
from data import site
from model import net

from offbeat.client import LocalSGD

torch.set_num_threads(1)  # since sites share a machine here; leave it out where a site has one of its own


def make_client(number: int) -> LocalSGD:
    """Return the client with this number, which the server gave it when it enrolled."""
    return LocalSGD(net(), "cross_entropy", site(number))
