"""Experiments and sweeps in a folder, each with its settings and key results."""

import hashlib
import json
import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from offbeat_core.errors import OffbeatError

from offbeat.config.algorithm_table import as_inline_toml
from offbeat.overview.progress import progress_of
from offbeat.report.collect import collect
from offbeat.report.finding import finding
from offbeat.report.summary import summarise
from offbeat.report.table import main_lines
from offbeat.report.tuning import ReportedTuning
from offbeat.runs import directory as run_directory
from offbeat.runs.settings import flat, world_of
from offbeat.sweeps.page.page import best_of_labels
from offbeat.sweeps.page.page import finding as sweep_finding
from offbeat.sweeps.page.parallel_data import setting_text
from offbeat.sweeps.record import is_sweep, read_record
from offbeat.sweeps.result import result_text
from offbeat.sweeps.trials import Trial, at_point, trial_label

_FORM = "1"  # of an entry
_RUN = re.compile(r"[^.].*-seed[0-9]+(\.unfinished)?")

Entry = Mapping[str, Any]
"""``folder``, ``stamp``, ``kind``, ``name``, ``world``, ``finding``, ``algorithms``, ``settings``, ``results``,
``finished``, ``report``, ``progress`` and ``problem``, as the page has them.
"""


def entries(folder: Path, known: Sequence[Entry] = (), seconds: float = math.inf) -> list[Entry]:
    """Return an entry for each experiment and sweep in a folder, the latest first.

    ``known`` are entries from before: those that are as they were are not read again. After so many ``seconds`` of real
    time no more are read, the latest first. An entry that was not or cannot be read has a line that says why.
    """
    end = time.monotonic() + seconds
    before = {entry.get("folder"): entry for entry in known}
    found: list[Entry] = []
    try:
        children = [child for child in folder.iterdir() if not child.name.startswith(".") and child.is_dir()]
        children.sort(key=lambda child: child.stat().st_mtime, reverse=True)
    except OSError as error:
        raise OffbeatError(f"cannot read {folder}: {error.strerror}; name a folder of experiments") from None
    for child in children:
        names = _names(child)
        if not names and not is_sweep(child):
            continue
        old, stamp = before.get(child.name), _stamp(child, names)
        is_moving = any(name.endswith(".unfinished") for name in names) or any(child.glob(".*lock"))
        if old is not None and old.get("stamp") == stamp and not is_moving:
            found.append(old)
        elif time.monotonic() < end:
            found.append(_entry(child, names, stamp))
        else:
            found.append(_empty(child, names) | {"problem": "not read yet: `offbeat ui` reads it"})
    return sorted(found, key=_order, reverse=True)


def _order(entry: Entry) -> tuple[bool, str, str]:
    """Return what entries are sorted by: those that run, then the latest."""
    progress = entry["progress"]
    return bool(progress and progress["running"]), entry["finished"], entry["folder"]


def _names(folder: Path) -> list[str]:
    try:
        return sorted(child.name for child in folder.iterdir() if _RUN.fullmatch(child.name) and child.is_dir())
    except OSError:
        return []


def _stamp(folder: Path, names: Sequence[str]) -> str:
    parts = [_FORM]
    for name in (*names, "report.html", "sweep.json"):
        try:
            parts.append(f"{name} {(folder / name).stat().st_mtime_ns}")
        except OSError:
            continue
    return hashlib.sha256("\n".join(parts).encode(errors="surrogateescape")).hexdigest()[:16]


def _entry(folder: Path, names: Sequence[str], stamp: str) -> Entry:
    entry = _empty(folder, names) | {"stamp": stamp}
    try:
        entry |= _sweep(folder, names) if entry["kind"] == "sweep" else _experiment(folder)
    except OffbeatError as error:
        entry["problem"] = error.lines[0]
    return entry


def _empty(folder: Path, names: Sequence[str]) -> dict[str, Any]:
    return {
        "folder": folder.name,
        "stamp": "",
        "kind": "sweep" if is_sweep(folder) else "experiment",
        "name": folder.name,
        "world": "",
        "finding": "",
        "algorithms": [],
        "settings": {},
        "results": [],
        "finished": "",
        "report": "report.html" if (folder / "report.html").is_file() else None,
        "progress": progress_of(folder, names),
        "problem": "",
    }


def _experiment(folder: Path) -> dict[str, Any]:
    runs = collect([folder])
    rows = summarise(runs)
    return {
        **_of_configurations([run.config for run in runs]),
        "world": world_of(runs),
        "finding": finding(rows, ReportedTuning.of(runs, rows[0].measure)),
        "results": [
            {"name": line.name, "values": {row.label: cell.text for row, cell in zip(rows, line.cells, strict=True)}}
            for line in main_lines(rows)
        ],
        "finished": _latest(run.path for run in runs),
    }


def _sweep(folder: Path, names: Sequence[str]) -> dict[str, Any]:
    searched, trials = read_record(folder)
    best = best_of_labels(trials)
    measure = searched.measure.replace("_", " ")
    return {
        **_of_configurations([_at_best(folder, names, trial, searched.seeds) for trial in best.values()]),
        "name": searched.name,
        "world": f"{', '.join(f'{searched.number(label)} trials of {label}' for label in searched.spaces)}",
        "finding": sweep_finding(searched, best),
        "algorithms": list(searched.spaces),
        "results": [
            {
                "name": f"Best {measure}",
                "values": {label: result_text(searched, trial) for label, trial in best.items()},
            }
        ],
        "finished": _latest(folder / name for name in names),
    }


def _at_best(folder: Path, names: Sequence[str], trial: Trial, seeds: Sequence[int]) -> dict[str, Any]:
    """Return the configuration of a label's best trial, with the sweep's seeds."""
    own = trial_label(trial.label, trial.number)
    name = next((name for name in names if name.startswith(f"{own}-seed")), f"{own}-seed{seeds[0]}")
    config, _, _ = run_directory.read_settings(folder / name)
    # What was searched for each algorithm is not a setting of all.
    of_all = {**config, "local": {k: v for k, v in config["local"].items() if f"local.{k}" not in trial.point}}
    table = {"algorithms": {trial.label: config["algorithms"][own]}}
    return {**of_all, "seeds": list(seeds), "algorithms": {trial.label: at_point(table, trial.label, trial.point)}}


def _of_configurations(configurations: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return name, algorithms and flat settings of an experiment's runs.

    A setting in which its algorithms differ has the label in its key.
    """
    settings: dict[str, dict[str, None]] = {}
    labels: dict[str, None] = {}
    seeds: dict[int, None] = {}
    for configuration in configurations:
        for key, value in configuration["algorithms"].items():
            labels[key] = None
            for name, one in flat(value).items():
                settings.setdefault(f"{key}: {name}", {})[setting_text(one)] = None
        seeds |= dict.fromkeys(configuration["seeds"])
        shared = {k: v for k, v in configuration.items() if k not in ("name", "seeds", "algorithms")}
        for name, one in flat(shared).items():
            settings.setdefault(name, {})[setting_text(one)] = None
    return {
        **({"name": configurations[0]["name"]} if configurations else {}),
        "algorithms": list(labels),
        "settings": {key: " | ".join(values) for key, values in settings.items()}
        | {"seeds": as_inline_toml(sorted(seeds))},
    }


def _latest(runs: Iterator[Path]) -> str:
    """Return when the last of finished runs ended, as their folders record it."""
    times = [""]
    for path in runs:
        try:
            times.append(str(json.loads((path / "timing.json").read_bytes()).get("finished", "")))
        except (OSError, ValueError, AttributeError):
            continue
    return max(times)
