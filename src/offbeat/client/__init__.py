"""The client of a server, with torch tensors by parameter name.

``offbeat_client`` does the work. ``run_client`` enrols, checks in, downloads, trains with the user's code and uploads;
it resumes after a kill or a broken connection. A client's file needs no other module of Offbeat.
"""

from offbeat_client.http.connection import Backoff
from offbeat_client.visit import Client, Evaluate, Fit, Fitted, Visit
from offbeat_core.errors import GiveUpError, OffbeatError

from offbeat.client.local_sgd import LocalSGD
from offbeat.client.torch_client import run_client

__all__ = [
    "Backoff",
    "Client",
    "Evaluate",
    "Fit",
    "Fitted",
    "GiveUpError",
    "LocalSGD",
    "OffbeatError",
    "Visit",
    "run_client",
]
