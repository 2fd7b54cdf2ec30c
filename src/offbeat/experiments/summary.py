"""The numbers of a comparison: one row an algorithm, over its seeds."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from offbeat.errors import OffbeatError
from offbeat.experiments.run_directory import Columns, Run


@dataclass(frozen=True)
class Estimate:
    """A measure over the seeds."""

    mean: float
    deviation: float | None  # the sample standard deviation; None for a single seed


@dataclass(frozen=True)
class Row:
    """What the seeds of one algorithm came to."""

    label: str
    seeds: int
    final_accuracy: Estimate  # 0 … 1
    best_accuracy: Estimate
    target_accuracy: float | None
    reached: int  # seeds that reached the target
    seconds_to_target: Estimate | None  # virtual; None unless every seed reached the target
    baseline: str  # the label that the speed-up is over
    speed_up: float | None
    counted: Estimate  # client updates
    unused: Estimate
    lost: Estimate
    bytes_down: Estimate
    bytes_up: Estimate
    mean_staleness: Estimate | None  # over counted updates; None where there are none
    max_staleness: int | None
    real_seconds: Estimate


def by_label(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Return the runs of each label, labels and runs in the order in which they come."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.label, []).append(run)
    return groups


def world_of(runs: Sequence[Run]) -> str:
    """Return one line on what was learnt by whom: the runs' data, model, clients, seeds and end."""
    config, seeds = runs[0].config, sorted({run.seed for run in runs})
    ends = {"virtual_seconds": "virtual seconds", "versions": "versions", "updates": "updates"}
    return (
        f"{config['data']['name']}, {config['model']['name']}, {config['population']['clients']:,} clients, "
        f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}, "
        f"up to {' or '.join(f'{number:,g} {ends[key]}' for key, number in config['stop'].items())}"
    )


def counted_staleness(events: Columns) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the staleness of each counted update, in versions; lost visits, which have none, are left out."""
    return events["staleness"][events["outcome"] == "counted"].astype(np.float64)


def summarise(runs: Sequence[Run], target_accuracy: float | None) -> list[Row]:
    """Sum up finished runs, one row a label, in the order in which the labels come.

    Args:
        runs: One for each label and seed.
        target_accuracy: 0 … 1; the time to it and the speed-up are left out if it is None.

    Raises:
        OffbeatError: A run was never evaluated.
    """
    groups = by_label(runs)
    for run in runs:
        if not len(run.history["accuracy"]):
            raise OffbeatError(f"{run.path} holds no evaluation; run it again with a shorter evaluation interval")
    times = {label: [_seconds_to(target_accuracy, run) for run in group] for label, group in groups.items()}
    baseline = _baseline(groups)
    return [_row(group, target_accuracy, times[label], baseline, times) for label, group in groups.items()]


def _row(
    runs: Sequence[Run],
    target_accuracy: float | None,
    times: Sequence[float | None],
    baseline: str,
    all_times: dict[str, list[float | None]],
) -> Row:
    staleness = [stale for stale in (counted_staleness(run.events) for run in runs) if len(stale)]
    seconds_to_target = _over_all(times)
    return Row(
        label=runs[0].label,
        seeds=len(runs),
        final_accuracy=_last(runs, "accuracy"),
        best_accuracy=_estimate(run.history["accuracy"].max() for run in runs),
        target_accuracy=target_accuracy,
        reached=sum(time is not None for time in times),
        seconds_to_target=seconds_to_target,
        baseline=baseline,
        speed_up=_ratio(_over_all(all_times[baseline]), seconds_to_target),
        counted=_last(runs, "counted"),
        unused=_last(runs, "unused"),
        lost=_last(runs, "lost"),
        bytes_down=_last(runs, "bytes_down"),
        bytes_up=_last(runs, "bytes_up"),
        mean_staleness=_estimate(stale.mean() for stale in staleness) if staleness else None,
        max_staleness=int(max(stale.max() for stale in staleness)) if staleness else None,
        real_seconds=_estimate(run.real_seconds for run in runs),
    )


def _baseline(groups: dict[str, list[Run]]) -> str:
    """The label ``fedavg``, since that is what papers compare with; else the first FedAvg; else the first."""
    labels = list(groups)
    if "fedavg" in labels:
        return "fedavg"
    for label in labels:
        if groups[label][0].config["algorithms"][label].get("algorithm", label) == "fedavg":
            return label
    return labels[0] if labels else ""


def _seconds_to(target_accuracy: float | None, run: Run) -> float | None:
    """Virtual seconds of the first evaluation at or above the target."""
    if target_accuracy is None:
        return None
    above = np.flatnonzero(run.history["accuracy"] >= target_accuracy)
    return float(run.history["seconds"][above[0]]) if len(above) else None


def _over_all(times: Sequence[float | None]) -> Estimate | None:
    """The mean over the lucky seeds only would flatter an algorithm that sometimes fails."""
    reached = [time for time in times if time is not None]
    return _estimate(reached) if len(reached) == len(times) else None


def _ratio(baseline: Estimate | None, own: Estimate | None) -> float | None:
    if baseline is None or own is None or own.mean == 0:
        return None
    return baseline.mean / own.mean


def _last(runs: Iterable[Run], column: str) -> Estimate:
    return _estimate(run.history[column][-1] for run in runs)


def _estimate(values: Iterable[float]) -> Estimate:
    numbers = [float(value) for value in values]
    return Estimate(statistics.fmean(numbers), statistics.stdev(numbers) if len(numbers) > 1 else None)
