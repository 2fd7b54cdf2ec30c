"""The components of algorithms: one import for authors."""

from offbeat_core.local_plan import Compression, LocalPlan, Payload
from offbeat_core.number_checks import check_not_negative

from offbeat.algorithms.components.algorithm import Algorithm
from offbeat.algorithms.components.buffers.aggregate import (
    DOES_NOT_COUNT,
    Aggregate,
    ClosedBuffer,
    Entry,
    NotFiniteError,
    Sum,
    Weight,
    WrongStepError,
)
from offbeat.algorithms.components.buffers.by_round import ByGroup, ByRound
from offbeat.algorithms.components.buffers.client_means import ClientMeans
from offbeat.algorithms.components.buffers.latest_of_each import LatestModels, LatestOfEach
from offbeat.algorithms.components.buffers.single_updates import Each
from offbeat.algorithms.components.buffers.window import Window
from offbeat.algorithms.components.client_update import (
    Promise,
    Update,
    UpdateRefusedError,
    Vector,
    check_vector,
    resolve,
)
from offbeat.algorithms.components.component import RunFacts
from offbeat.algorithms.components.hyper_parameters import Count, NotNegative, Period, Positive, Share, Weighting
from offbeat.algorithms.components.schedules.arrival_groups import ArrivalGroups
from offbeat.algorithms.components.schedules.periodic import Periodic
from offbeat.algorithms.components.schedules.rounds import Available, OverSelection, Rounds
from offbeat.algorithms.components.schedules.schedule import Continuous, Schedule
from offbeat.algorithms.components.server_optimizer import ServerOptimizer, ServerStep
from offbeat.algorithms.components.weights import Shares, Staleness, polynomial

__all__ = [
    "DOES_NOT_COUNT",
    "Aggregate",
    "Algorithm",
    "ArrivalGroups",
    "Available",
    "ByGroup",
    "ByRound",
    "ClientMeans",
    "ClosedBuffer",
    "Compression",
    "Continuous",
    "Count",
    "Each",
    "Entry",
    "LatestModels",
    "LatestOfEach",
    "LocalPlan",
    "NotFiniteError",
    "NotNegative",
    "OverSelection",
    "Payload",
    "Period",
    "Periodic",
    "Positive",
    "Promise",
    "Rounds",
    "RunFacts",
    "Schedule",
    "ServerOptimizer",
    "ServerStep",
    "Share",
    "Shares",
    "Staleness",
    "Sum",
    "Update",
    "UpdateRefusedError",
    "Vector",
    "Weight",
    "Weighting",
    "Window",
    "WrongStepError",
    "check_not_negative",
    "check_vector",
    "polynomial",
    "resolve",
]
