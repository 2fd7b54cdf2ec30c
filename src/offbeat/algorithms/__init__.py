"""Server-side algorithms, one file each.

They are pure state machines, for a simulator or a server.
"""

import sys

from offbeat_core.local_plan import Compression, LocalPlan

from offbeat.algorithms.ace import ACE
from offbeat.algorithms.area import AREA
from offbeat.algorithms.async_comm_sgd import AsyncCommSGD
from offbeat.algorithms.ca2fl import CA2FL
from offbeat.algorithms.components.algorithm import Algorithm
from offbeat.algorithms.components.buffers.aggregate import DOES_NOT_COUNT
from offbeat.algorithms.components.client_update import Promise, Update, check_vector
from offbeat.algorithms.components.registry import Registry
from offbeat.algorithms.fadas import FADAS
from offbeat.algorithms.fedasync import FedAsync
from offbeat.algorithms.fedavg import FedAvg
from offbeat.algorithms.fedbuff import FedBuff
from offbeat.algorithms.fedcompass import FedCompass
from offbeat.algorithms.feddyn import FedDyn
from offbeat.algorithms.fedfa import FedFa
from offbeat.algorithms.fedlaavg import FedLaAvg
from offbeat.algorithms.fedluck import FedLuck
from offbeat.algorithms.fednova import FedNova
from offbeat.algorithms.mifa import MIFA
from offbeat.algorithms.port import Port
from offbeat.algorithms.ringleader import RingleaderASGD
from offbeat.algorithms.ringmaster import RingmasterASGD
from offbeat.algorithms.scaffold import SCAFFOLD
from offbeat.algorithms.sequential_sgd import SequentialSGD

ALGORITHMS = Registry(sys.modules[__name__])
"""All algorithms by name: the modules of this package, and other packages' entry points.

Examples:
    >>> ALGORITHMS["fedbuff"](buffer_size=5).buffer_size
    5
"""

__all__ = [
    "ACE",
    "ALGORITHMS",
    "AREA",
    "CA2FL",
    "DOES_NOT_COUNT",
    "FADAS",
    "MIFA",
    "SCAFFOLD",
    "Algorithm",
    "AsyncCommSGD",
    "Compression",
    "FedAsync",
    "FedAvg",
    "FedBuff",
    "FedCompass",
    "FedDyn",
    "FedFa",
    "FedLaAvg",
    "FedLuck",
    "FedNova",
    "LocalPlan",
    "Port",
    "Promise",
    "RingleaderASGD",
    "RingmasterASGD",
    "SequentialSGD",
    "Update",
    "check_vector",
]
