"""Server-side algorithms, one file each: pure state machines that a simulator or a server drives alike."""

from offbeat.algorithms.async_comm_sgd import AsyncCommSGD
from offbeat.algorithms.base import Algorithm, Compression, LocalPlan, Promise, Update, check_vector
from offbeat.algorithms.fedasync import FedAsync
from offbeat.algorithms.fedavg import FedAvg
from offbeat.algorithms.fedbuff import FedBuff
from offbeat.algorithms.fedfa import FedFa
from offbeat.algorithms.fedlaavg import FedLaAvg
from offbeat.algorithms.fedluck import FedLuck
from offbeat.algorithms.fednova import FedNova
from offbeat.algorithms.port import Port
from offbeat.algorithms.sequential_sgd import SequentialSGD

ALGORITHMS: dict[str, type[Algorithm]] = {
    algorithm.name: algorithm
    for algorithm in (
        FedAvg,
        FedNova,
        FedAsync,
        FedBuff,
        FedFa,
        Port,
        AsyncCommSGD,
        FedLaAvg,
        FedLuck,
        SequentialSGD,
    )
}

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "AsyncCommSGD",
    "Compression",
    "FedAsync",
    "FedAvg",
    "FedBuff",
    "FedFa",
    "FedLaAvg",
    "FedLuck",
    "FedNova",
    "LocalPlan",
    "Port",
    "Promise",
    "SequentialSGD",
    "Update",
    "check_vector",
]
