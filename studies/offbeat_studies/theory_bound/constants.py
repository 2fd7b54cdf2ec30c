"""Constants and assumptions of convergence theorems, from a file and the user."""

import math
from dataclasses import dataclass

from offbeat.algorithms import Algorithm, FedLuck, LocalPlan
from offbeat.algorithms.components.schedules.patterns import Pattern
from offbeat.config.experiment_file import Experiment
from offbeat.config.experiment_sections import ServerSection, StopSection
from offbeat.config.population_sections import (
    AlwaysSection,
    BernoulliSection,
    ByHourSection,
    ConstantSection,
    IidSection,
    PopulationSection,
    QuantitySkewSection,
)
from offbeat.config.privacy_section import PrivacySection
from offbeat.theory.bound import Assumption, given

# (client, round) pairs of a random pattern that are drawn to find its longest gap; more would take too long.
_MOST_PAIRS = 10**6
_RISK = 0.01


@dataclass(frozen=True)
class Known:
    """Constants that the user gives and a file lacks; None if not given.

    Attributes:
        smoothness: L of every client's loss.
        initial_error: f(w_0) − f*.
        variance: σ² of a single example's gradient.
        diversity: γ² or ζ², the mean square distance of the clients' gradients from their mean.
        gradient_bound: G, with G² ≥ the mean square of a client's minibatch gradient.
        max_staleness: The largest staleness of an update that counts: τ, or FedLaAvg's I in rounds.
        rounds: T.
    """

    smoothness: float | None = None
    initial_error: float | None = None
    variance: float | None = None
    diversity: float | None = None
    gradient_bound: float | None = None
    max_staleness: int | None = None
    rounds: int | None = None


@dataclass(frozen=True)
class Constant:
    """One constant of a theorem, in the paper's symbol.

    ``source`` is the key or option that gives the value, or that is missing if the value is None.
    """

    symbol: str
    value: float | None
    source: str


def problem(known: Known, function: str, model: str) -> dict[str, Constant]:
    """Return L and f(w_0) − f*, with the paper's letters for objective f and model w."""
    start = f"{function}({model}_0) − {function}*"
    return {
        "smoothness": Constant("L", known.smoothness, "--smoothness"),
        "initial_error": Constant(start, known.initial_error, "--initial-error"),
    }


def minibatch_variance(known: Known, plan: LocalPlan) -> Constant:
    """Return σ² of a minibatch's gradient: an example's, divided by the batch size.

    A client with fewer examples uses all of them in every step, so its variance is 0.
    """
    variance = known.variance
    return Constant("σ²", None if variance is None else variance / plan.batch_size, "--variance")


def step_size(plan: LocalPlan) -> float:
    """Return the clients' step size, which a file sets for all steps."""
    assert not isinstance(plan.lr, tuple)
    return plan.lr


def rounds(stop: StopSection, known: Known, *, buffer_size: int | None = None, period: float | None = None) -> Constant:
    """Return T, the number of server steps until a run ends, unless the user gives it.

    A step has ``buffer_size`` updates or lasts ``period`` seconds, if these are constant.
    """
    if known.rounds is not None:
        return Constant("T", known.rounds, "--rounds")
    ends: dict[str, int | None] = {"versions": stop.versions, "updates": None, "virtual_seconds": None}
    if stop.updates is not None and buffer_size:
        ends["updates"] = stop.updates // buffer_size
    if stop.virtual_seconds is not None and period:
        ends["virtual_seconds"] = math.floor(round(stop.virtual_seconds / period, 9))  # 0.3 / 0.1 is a little below 3
    counted = {key: end for key, end in ends.items() if end is not None}
    if not counted:
        return Constant("T", None, "--rounds")
    first = min(counted, key=counted.__getitem__)
    sooner = [key for key in stop.model_dump(exclude_none=True) if key not in counted]
    unless = f", unless {' or '.join(sooner)} ends it sooner" if sooner else ""
    return Constant("T", counted[first], f"stop.{first}{unless}")


def staleness(symbol: str, experiment: Experiment, known: Known) -> Constant:
    """Return the largest staleness: the user's, or else the server's limit."""
    if known.max_staleness is None and experiment.server.max_staleness is not None:
        return Constant(symbol, experiment.server.max_staleness, "server.max_staleness")
    return Constant(symbol, known.max_staleness, "--max-staleness")


def is_always_available(population: PopulationSection) -> bool:
    """Return whether clients are always available and never lose work."""
    return isinstance(population.availability, AlwaysSection) and not population.lossy


def is_uniform(population: PopulationSection, concurrency: int) -> bool:
    """Return whether each arrival is equally likely to come from any client.

    This needs equal clients, or one client that works at a time; else fast clients arrive more often.
    """
    speeds = (population.step_seconds, population.down_bytes_per_second, population.up_bytes_per_second)
    alike = not population.lossy and all(isinstance(speed, ConstantSection) for speed in speeds)
    if alike and isinstance(population.availability, BernoulliSection):
        return True
    return is_always_available(population) and (alike or concurrency == 1)


def counts_equally(population: PopulationSection, weighting: str) -> bool:
    """Return whether all clients have the same weight, up to rounding.

    With ``examples`` this needs a partition into sizes that differ by at most one for all data; classes, users and
    files may have any size.
    """
    partition = population.partition
    if weighting == "uniform" or population.clients == 1:
        return True
    if isinstance(partition, QuantitySkewSection):
        return partition.sigma == 0
    return isinstance(partition, IidSection | ByHourSection)


def longest_gap(pattern: Pattern, clients: int, rounds: int) -> tuple[int, str]:
    """Return Δ, the longest gap between two talks of a client, and its source.

    The gaps of a random pattern have no bound; its longest gap until round T is drawn, rounds 0 and T included. With
    too many clients and rounds it is a gap that is exceeded with a small probability.
    """
    source = f"pattern {pattern.name}"
    if pattern.name != "random":
        return pattern.longest_gap(clients), source
    if clients * rounds > _MOST_PAIRS:
        gap = min(_unlikely_gap(pattern.parameters["p"], clients, rounds), rounds)
        return gap, f"{source}, exceeded with probability at most {100 * _RISK:g} %"
    return _drawn_gap(pattern, clients, rounds), source


def _unlikely_gap(p: float, clients: int, rounds: int) -> int:
    """Return a gap that clients exceed with probability ``_RISK`` at most.

    On average N(1 + Tp) gaps begin, N of them in round 0; each is longer than g with probability (1 − p)^g.
    """
    if p == 1:
        return 1
    return math.ceil(math.log(clients * (1 + rounds * p) / _RISK) / -math.log1p(-p))


def _drawn_gap(pattern: Pattern, clients: int, rounds: int) -> int:
    longest = 0
    for client in range(clients):
        talked = 0
        while talked < rounds:
            talks = min(pattern.next_round(client, talked, clients), rounds)
            longest = max(longest, talks - talked)
            talked = talks
    return longest


def is_in_time(experiment: Experiment, plan: LocalPlan, period: float) -> Assumption:
    """Return the assumption that clients finish their steps before they talk."""
    population = experiment.population
    if not is_always_available(population):
        return Assumption("clients go offline or lose work, so they talk less often than the pattern says", False)
    speed = population.step_seconds
    if isinstance(speed, ConstantSection) and plan.steps * speed.value >= period:
        busy = f"{plan.steps} steps of {speed.value:g} s do not fit into a round of {period:g} s"
        return Assumption(f"{busy}, so clients talk less often than the pattern says", False)
    return given("clients finish in time for their rounds")


def plain_steps(
    algorithm: Algorithm, plan: LocalPlan, server: ServerSection, privacy: PrivacySection | None
) -> tuple[Assumption, ...]:
    """Return the assumption of plain steps, or a broken one for each other setting."""
    keys = ["momentum", "weight_decay", "mu", "clip_norm", "error_feedback", "lr_decay"]
    if not isinstance(algorithm, FedLuck):  # its theorem includes its compression
        keys.append("compression")
    extras = [f"local.{key}" for key in keys if getattr(plan, key)]
    if plan.optimizer != "sgd":
        extras.append("local.optimizer")
    if getattr(algorithm, "server_optimizer", None) is not None:
        extras.append("server_optimizer")
    if server.aggregate not in (None, "mean"):
        extras.append("server.aggregate")
    norms = ("update_clip_norm", "max_update_norm", "max_step_norm")
    extras += [f"server.{key}" for key in norms if getattr(server, key) is not None]
    if privacy is not None:
        extras.append("privacy")
    if not extras:
        return (Assumption("clients and server take plain gradient steps", True),)
    return tuple(Assumption(f"{extra} is set: steps are not plain gradient steps", False) for extra in extras)
