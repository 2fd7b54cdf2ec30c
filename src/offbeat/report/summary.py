"""Numbers of a comparison: a row for each algorithm, over its seeds."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from offbeat.client_metrics import CLIENTS_EVALUATED, STATISTICS, column
from offbeat.errors import OffbeatError
from offbeat.report.confidence_interval import Estimate, estimate
from offbeat.report.metrics import Measure, main_measure, measures_of, target_for
from offbeat.runs.directory import Run
from offbeat.runs.parquet_chunks import Columns
from offbeat.runs.settings import algorithm_of, by_label, same_world

TAIL = 10  # evaluations at the end whose mean is reported: a single one fluctuates


@dataclass(frozen=True)
class Row:
    """The results of one algorithm over its seeds."""

    label: str
    seeds: int
    measure: Measure  # the main one: of best, tail and target
    final: dict[Measure, Estimate]  # at the last evaluation: the main measure, other metrics, the loss
    best: Estimate
    tail: Estimate | None  # mean of the last TAIL evaluations; None if a seed has fewer
    target: float | None
    reached: int  # seeds that reached the target
    seconds_to_target: Estimate | None  # virtual; None unless every seed reached the target
    baseline: str  # the label to which the speed-up refers
    speed_up: float | None
    other_world: bool  # another world than the baseline's, so that speeds cannot be compared
    counted: Estimate  # client updates
    unused: Estimate
    lost: Estimate
    bytes_down: Estimate
    bytes_up: Estimate
    epsilon: float | None  # of the client with the most participations, the highest of all seeds; None: not private
    epsilon_replace_one: float | None
    clients: dict[str, Estimate]  # the main measure over clients at the last evaluation, by statistic; may be empty
    mean_staleness: Estimate | None  # over counted updates; None without counted updates
    max_staleness: int | None
    real_seconds: Estimate | None  # of finished runs; None without finished runs
    without_version: tuple[int, ...]  # seeds that never made a version
    why_no_version: str  # a sentence about these seeds; empty if there are none
    unfinished: dict[int, float]  # by seed, the virtual seconds of the last evaluation of an unfinished run


def counted_staleness(events: Columns) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the staleness of each counted update, in versions."""
    return events["staleness"][events["outcome"] == "counted"].astype(np.float64)


def summarise(runs: Sequence[Run], target: float | None = None) -> list[Row]:
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
    times = {label: [_seconds_to(target, measure, run) for run in group] for label, group in groups.items()}
    baseline = _baseline(groups)
    # Times of different worlds cannot be compared.
    elsewhere = {label: not same_world(group[0], groups[baseline][0]) for label, group in groups.items()}
    baseline_time = _over_all(times[baseline]) if groups else None
    return [
        _row(group, measure, target, times[label], baseline, baseline_time, other_world=elsewhere[label])
        for label, group in groups.items()
    ]


def _row(
    runs: Sequence[Run],
    measure: Measure,
    target: float | None,
    times: Sequence[float | None],
    baseline: str,
    baseline_time: Estimate | None,
    *,
    other_world: bool,
) -> Row:
    staleness = [stale for stale in (counted_staleness(run.events) for run in runs) if len(stale)]
    seconds_to_target = _over_all(times)
    curves = [run.history[measure.name].astype(np.float64) for run in runs]
    measured = [set(measures_of(run)) for run in runs]
    finished = [run for run in runs if run.finished]
    without_version = [run for run in runs if run.history["version"][-1] == 0]
    return Row(
        label=runs[0].label,
        seeds=len(runs),
        measure=measure,
        final={one: _last(runs, one.name) for one in measures_of(runs[0]) if all(one in others for others in measured)},
        best=estimate(measure.best(curve) for curve in curves),
        tail=estimate(curve[-TAIL:].mean() for curve in curves) if all(len(c) >= TAIL for c in curves) else None,
        target=target,
        reached=sum(time is not None for time in times),
        seconds_to_target=seconds_to_target,
        baseline=baseline,
        speed_up=None if other_world else _ratio(baseline_time, seconds_to_target),
        other_world=other_world,
        counted=_last(runs, "counted"),
        unused=_last(runs, "unused"),
        lost=_last(runs, "lost"),
        bytes_down=_last(runs, "bytes_down"),
        bytes_up=_last(runs, "bytes_up"),
        epsilon=_spent(runs, "epsilon"),
        epsilon_replace_one=_spent(runs, "epsilon_replace_one"),
        clients=_over_clients(runs, measure),
        mean_staleness=estimate(stale.mean() for stale in staleness) if staleness else None,
        max_staleness=int(max(stale.max() for stale in staleness)) if staleness else None,
        real_seconds=estimate(run.real_seconds for run in finished) if finished else None,
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


def _seconds_to(target: float | None, measure: Measure, run: Run) -> float | None:
    """Return the virtual seconds of the first evaluation that reached the target."""
    if target is None:
        return None
    good = np.flatnonzero(measure.reached(run.history[measure.name], target))
    return float(run.history["seconds"][good[0]]) if len(good) else None


def _over_all(times: Sequence[float | None]) -> Estimate | None:
    """Return the estimate; None if a seed missed the target: others would flatter."""
    reached = [time for time in times if time is not None]
    return estimate(reached) if len(reached) == len(times) else None


def _ratio(baseline: Estimate | None, own: Estimate | None) -> float | None:
    if baseline is None or own is None or own.mean == 0:
        return None
    return baseline.mean / own.mean


def _over_clients(runs: Sequence[Run], measure: Measure) -> dict[str, Estimate]:
    columns = {statistic: column(measure.name, statistic) for statistic in STATISTICS}
    if not all(CLIENTS_EVALUATED in run.history and columns["mean"] in run.history for run in runs):
        return {}
    return {statistic: _last(runs, name) for statistic, name in columns.items()}


def _spent(runs: Iterable[Run], column: str) -> float | None:
    return max((float(run.history[column][-1]) for run in runs if column in run.history), default=None)


def _last(runs: Iterable[Run], column: str) -> Estimate:
    return estimate(run.history[column][-1] for run in runs)
