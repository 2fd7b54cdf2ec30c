"""Numbers of a comparison: a row for each algorithm, over its seeds."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from offbeat_core.errors import OffbeatError

from offbeat.client_metrics import CLIENTS_EVALUATED, STATISTICS, column
from offbeat.metric_bounds import AMOUNT, SHARE, UNBOUNDED, Bounds
from offbeat.report.metrics import Measure, cost, main_measure, measures_of, target_for
from offbeat.runs.directory import Run, read_client_time
from offbeat.runs.parquet_chunks import Columns
from offbeat.runs.settings import algorithm_of, by_label, same_world
from offbeat.statistics.all_pairs import Observed
from offbeat.statistics.estimates import Estimate, Paired, difference, estimate, ratio

_NARROW = 1e-3  # of roundings, and of multiples of 1 / n
_MOST_EXAMPLES = 2000  # the accuracy on more has steps that do not matter
_VALUES = 100  # that are looked at for a step
TAIL = 10  # evaluations at the end whose mean is reported: a single one fluctuates


@dataclass(frozen=True)
class SummaryRow:
    """The results of one algorithm over its seeds."""

    label: str
    seeds: int
    measure: Measure  # the main one: of best, tail and target
    final: dict[Measure, Estimate]  # at the last evaluation: the main measure, other metrics, the loss
    best: Estimate
    tail: Estimate | None  # mean of the last TAIL evaluations; None if a seed has fewer
    target: float | None
    log_seconds: dict[int, Observed]  # to the target, by seed; of one that missed it, at least those of the run
    ends: dict[int, float]  # the measure's last value by seed; NaN for an unfinished run
    step: float  # between the measure's possible values, as of the accuracy on 500 examples; 0 if it is unknown
    reached: int  # seeds that reached the target
    seconds_to_target: Estimate | None  # virtual; None unless every seed reached the target
    undecided: tuple[int, ...]  # seeds of unfinished runs that have not reached the target, if there is one
    median_to_target: float | None  # over all seeds, seconds; None if half missed the target or one is undecided
    updates_to_target: Estimate | None  # visits of clients; None unless every seed reached the target
    bytes_to_target: Estimate | None  # to and by all clients
    baseline: str  # the label to which speed-up and difference refer
    speed_up: Paired | None  # the baseline's time to target over this one's
    difference: Paired | None  # of the last value of the measure, to the baseline's; None if a run is unfinished
    other_world: bool  # another world than the baseline's, so that speeds cannot be compared
    versions: Estimate  # that were made
    counted: Estimate  # client updates
    unused: Estimate
    lost: Estimate
    bytes_down: Estimate
    bytes_up: Estimate
    epsilon: float | None  # of the client with the most participations, the highest of all seeds; None: not private
    epsilon_replace_one: float | None
    clients: dict[str, Estimate]  # the main measure over clients at the last evaluation, by statistic; may be empty
    displacement: Estimate | None  # how far a counted update moves the model: Σ‖w_{t+1} − w_t‖ / updates
    mean_staleness: Estimate | None  # over counted updates; None without counted updates
    max_staleness: int | None
    waiting_share: Estimate | None  # of the time in which clients are available or work; None if a run does not tell
    never_counted: Estimate | None  # clients
    real_seconds: Estimate | None  # of finished runs; None without finished runs
    without_version: tuple[int, ...]  # seeds that never made a version
    why_no_version: str  # a sentence about these seeds; empty if there are none
    unfinished: dict[int, float]  # by seed, the virtual seconds of the last evaluation of an unfinished run


def counted_staleness(events: Columns) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the staleness of each counted update, in versions."""
    return events["staleness"][events["outcome"] == "counted"].astype(np.float64)


def never_counted(events: Columns, clients: int) -> int:
    """Return how many of a run's clients never had an update that counted."""
    return clients - len(np.unique(events["client"][events["outcome"] == "counted"]))


def summarise(runs: Sequence[Run], target: float | None = None) -> list[SummaryRow]:
    """Return a row for each label, in the order of the runs.

    ``target`` is that of the main measure; None for the target in the runs' configuration. Without a target there is no
    time to it, and no speed-up.
    """
    groups = by_label(runs)
    for run in runs:
        if not len(run.history["seconds"]):
            advice = "run it again with a shorter evaluation interval" if run.finished else "wait for the first"
            raise OffbeatError(f"{run.path} holds no evaluation; {advice}")
    measure, target = main_measure(runs), target_for(runs, target)
    baseline = _baseline(groups)
    step = _step(runs, measure)
    return [_row(group, measure, target, groups[baseline], step) for group in groups.values()]


def _row(
    runs: Sequence[Run], measure: Measure, target: float | None, baseline: Sequence[Run], step: float
) -> SummaryRow:
    staleness = [stale for stale in (counted_staleness(run.events) for run in runs) if len(stale)]
    times, baseline_times = (_to_target("seconds", target, measure, group) for group in (runs, baseline))
    other_world = not same_world(runs[0], baseline[0])  # whose times and values cannot be compared
    curves = [run.history[measure.name].astype(np.float64) for run in runs]
    measured = [set(measures_of(run)) for run in runs]
    finished = [run for run in runs if run.finished]
    undecided = tuple(run.seed for run in runs if not run.finished and times[run.seed] is None)
    client_times = list(map(read_client_time, runs))
    without_version = [run for run in runs if run.history["version"][-1] == 0]
    return SummaryRow(
        label=runs[0].label,
        seeds=len(runs),
        measure=measure,
        final={
            one: _last(runs, one.name, one.bounds)
            for one in measures_of(runs[0])
            if all(one in others for others in measured)
        },
        best=estimate((measure.best(curve) for curve in curves), measure.bounds),
        tail=estimate((curve[-TAIL:].mean() for curve in curves), measure.bounds)
        if all(len(curve) >= TAIL for curve in curves)
        else None,
        target=target,
        log_seconds={run.seed: _log_seconds(run, times[run.seed]) for run in runs},
        ends=_ends(runs, measure),
        step=step,
        reached=sum(time is not None for time in times.values()),
        seconds_to_target=_over_all(times),
        undecided=undecided,
        median_to_target=None if undecided else _median(times),
        updates_to_target=_over_all(_to_target("updates", target, measure, runs)),
        bytes_to_target=_over_all(_to_target("bytes", target, measure, runs)),
        baseline=baseline[0].label,
        speed_up=None if other_world else ratio(baseline_times, times),
        difference=None if other_world else difference(_ends(runs, measure), _ends(baseline, measure)),
        other_world=other_world,
        versions=_last(runs, "version", AMOUNT),
        counted=_last(runs, "counted", AMOUNT),
        unused=_last(runs, "unused", AMOUNT),
        lost=_last(runs, "lost", AMOUNT),
        bytes_down=_last(runs, "bytes_down", AMOUNT),
        bytes_up=_last(runs, "bytes_up", AMOUNT),
        epsilon=_spent(runs, "epsilon"),
        epsilon_replace_one=_spent(runs, "epsilon_replace_one"),
        clients=_over_clients(runs, measure),
        displacement=_displacement(runs),
        mean_staleness=estimate((stale.mean() for stale in staleness), AMOUNT) if staleness else None,
        max_staleness=int(max(stale.max() for stale in staleness)) if staleness else None,
        waiting_share=_if_all((time and time.waiting_share for time in client_times), SHARE),
        never_counted=_if_all(
            time and never_counted(run.events, time.clients) for run, time in zip(runs, client_times, strict=True)
        ),
        real_seconds=estimate((run.real_seconds for run in finished), AMOUNT) if finished else None,
        without_version=tuple(run.seed for run in without_version),
        why_no_version=_why_no_version(without_version),
        unfinished={run.seed: float(run.history["seconds"][-1]) for run in runs if not run.finished},
    )


def _why_no_version(runs: Sequence[Run]) -> str:
    """Return the probable reason for runs without a version."""
    if not runs:
        return ""
    sent, counted, unused, lost = (
        int(sum(run.history[name][-1] for run in runs)) for name in ("bytes_down", "counted", "unused", "lost")
    )
    if not sent:
        return "No client got an assignment: was any client available?"
    if counted:
        return f"{counted:,} {'update' if counted == 1 else 'updates'} counted, which was not enough for a version."
    if not unused + lost:
        return "No visit ended: compare the length of the run with that of a visit (offbeat population)."
    failed = unused + lost
    return (
        f"{failed:,} {'visit was' if failed == 1 else 'visits were'} lost or too late: compare server.lease_seconds "
        "with the length of a visit (offbeat population)."
    )


def _baseline(groups: dict[str, list[Run]]) -> str:
    """Return the label ``fedavg``; else the first FedAvg; else the first label."""
    if "fedavg" in groups:
        return "fedavg"
    for label, group in groups.items():
        if algorithm_of(group[0]) == "fedavg":
            return label
    return next(iter(groups), "")


def _to_target(over: str, target: float | None, measure: Measure, runs: Sequence[Run]) -> dict[int, float | None]:
    """Return by seed the cost of reaching the target; None if it was missed."""
    found: dict[int, float | None] = dict.fromkeys(run.seed for run in runs)
    for run in runs:
        values = run.history[measure.name]
        good = [] if target is None else np.flatnonzero(measure.reached(values, target)).tolist()
        if good:
            found[run.seed] = float(cost(over, run)[good[0]])
    return found


def _log_seconds(run: Run, time: float | None) -> Observed:
    """Return the logarithm of the time to the target, or bounds if it was missed.

    The time is rounded to the next evaluation of a new model: of a FedAvg with long rounds, to rounds.
    """
    seconds = run.history["seconds"]
    if time is None:
        return Observed(math.log(seconds[-1]) if seconds[-1] > 0 else -math.inf, math.inf)
    if time > 0:
        version = run.history["version"]
        last = version[seconds < time].max(initial=0)
        before = float(seconds[version >= last][0])  # since then the model was the same
        return Observed(math.log(time), math.log(time), _log_rounding(before / time))
    return Observed(-math.inf, math.log(seconds[1]) if len(seconds) > 1 else math.inf)


def _log_rounding(least: float) -> float:
    """Return the standard deviation of log u, for u uniform between ``least`` and 1."""
    if least <= 0:
        return 1.0
    half = -math.log(least) / 2
    return math.sqrt(max(1 - (half / math.sinh(half)) ** 2, 0.0)) if half > _NARROW else half / math.sqrt(3)


def _step(runs: Iterable[Run], measure: Measure) -> float:
    """Return the step between the values of a share of examples.

    It is 1 / n for the least n, up to 2,000, with which all values are multiples; 0 if there is none.
    """
    if not measure.is_share:
        return 0.0
    values = np.unique(np.concatenate([run.history[measure.name] for run in runs]).astype(np.float64))
    values = values[np.isfinite(values)]
    values = values[:: math.ceil(len(values) / _VALUES) or 1]
    products = values[:, None] * np.arange(1, _MOST_EXAMPLES + 1)
    fits = np.flatnonzero((np.abs(products - products.round()) < _NARROW).all(axis=0))
    return 1 / (int(fits[0]) + 1) if len(fits) else 0.0


def _displacement(runs: Sequence[Run]) -> Estimate | None:
    """Return how far an update moves the model; None if none counted in some run."""
    if not all(run.history["counted"][-1] for run in runs):
        return None
    return estimate((run.history["displacement"][-1] / run.history["counted"][-1] for run in runs), AMOUNT)


def _over_all(costs: Mapping[int, float | None]) -> Estimate | None:
    """Return the estimate; None if a seed missed the target: others would flatter."""
    return _if_all(costs.values())


def _if_all(values: Iterable[float | None], bounds: Bounds = AMOUNT) -> Estimate | None:
    """Return the estimate; None if a value is unknown."""
    found = list(values)
    known = [value for value in found if value is not None]
    return estimate(known, bounds) if len(known) == len(found) else None


def _median(times: Mapping[int, float | None]) -> float | None:
    """Return the median time; a seed that missed the target took the longest."""
    median = statistics.median(math.inf if time is None else time for time in times.values())
    return median if math.isfinite(median) else None


def _ends(runs: Iterable[Run], measure: Measure) -> dict[int, float]:
    """Return the last value by seed; NaN for an unfinished run, which has no end."""
    return {run.seed: float(run.history[measure.name][-1]) if run.finished else math.nan for run in runs}


def _over_clients(runs: Sequence[Run], measure: Measure) -> dict[str, Estimate]:
    columns = {statistic: column(measure.name, statistic) for statistic in STATISTICS}
    if not all(CLIENTS_EVALUATED in run.history and columns["mean"] in run.history for run in runs):
        return {}
    return {statistic: _last(runs, name, measure.bounds) for statistic, name in columns.items()}


def _spent(runs: Iterable[Run], column: str) -> float | None:
    return max((float(run.history[column][-1]) for run in runs if column in run.history), default=None)


def _last(runs: Iterable[Run], column: str, bounds: Bounds = UNBOUNDED) -> Estimate:
    return estimate((run.history[column][-1] for run in runs), bounds)
