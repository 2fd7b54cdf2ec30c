"""The client of a server, with torch tensors by parameter name.

``offbeat_client`` does the work. ``run_client`` enrols, checks in, downloads, trains with the user's code and uploads;
it resumes after a kill or a broken connection.
"""

from offbeat_client.visit import Client, Evaluate, Fit, Fitted, Visit

from offbeat.service.client.local_sgd import LocalSGD
from offbeat.service.client.torch_client import run_client

__all__ = ["Client", "Evaluate", "Fit", "Fitted", "LocalSGD", "Visit", "run_client"]
