"""Server-side algorithms, one file each: pure state machines that a simulator or a server drives alike."""

from offbeat.algorithms.base import Algorithm, LocalPlan, Promise, Update, check_vector
from offbeat.algorithms.fedasync import FedAsync
from offbeat.algorithms.fedavg import FedAvg
from offbeat.algorithms.fedbuff import FedBuff

ALGORITHMS: dict[str, type[Algorithm]] = {algorithm.name: algorithm for algorithm in (FedAvg, FedAsync, FedBuff)}

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "FedAsync",
    "FedAvg",
    "FedBuff",
    "LocalPlan",
    "Promise",
    "Update",
    "check_vector",
]
