"""The client's side of the service: one class or one function trains, all the rest is here.

``run_client`` enrols, checks in, downloads, trains with what the user gave, uploads, and goes on after a kill or a
broken line where it was.
"""

from offbeat.service.client.contract import Client, Fit, Fitted, Visit
from offbeat.service.client.local_sgd import LocalSGD
from offbeat.service.client.run import run_client

__all__ = ["Client", "Fit", "Fitted", "LocalSGD", "Visit", "run_client"]
