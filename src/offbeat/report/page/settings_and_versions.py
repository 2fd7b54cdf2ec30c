"""Settings, package versions and origin of the runs on a page."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import tomli_w
from offbeat_core.errors import OffbeatError

from offbeat.runs.directory import Run
from offbeat.runs.settings import algorithm_of, by_label, differences, flat


def configurations(runs: Sequence[Run]) -> dict[str, str]:
    """Return the configuration of each label as TOML, with the seeds of all its runs."""
    return {
        label: tomli_w.dumps({**group[0].config, "seeds": [run.seed for run in group]})
        for label, group in by_label(runs).items()
    }


def differing_settings(runs: Sequence[Run]) -> dict[str, list[str]]:
    """Return the settings in which labels differ, by key, with a text for each label."""
    settings = [_settings(group[0]) for group in by_label(runs).values()]
    return {key: [_text(table, key) for table in settings] for key in differences(settings)}


def _settings(run: Run) -> dict[str, Any]:
    """Return a run's flat settings, those of its algorithm without its label."""
    (algorithm, *_) = run.config["algorithms"].values()
    shared = {key: value for key, value in run.config.items() if key not in ("name", "seeds", "algorithms")}
    return flat(shared | {"algorithm": algorithm_of(run)} | {k: v for k, v in algorithm.items() if k != "algorithm"})


def _text(table: Mapping[str, Any], key: str) -> str:
    value = table.get(key, "–")
    return value if isinstance(value, str) else tomli_w.dumps({"x": value}).removeprefix("x = ").strip()


def package_versions(runs: Sequence[Run]) -> dict[str, str]:
    """Return the versions of each package, separated by commas if the runs differ."""
    versions: dict[str, list[str]] = {}
    for run in runs:
        path = run.path / "versions.json"
        try:
            content = {str(key): str(value) for key, value in json.loads(path.read_text(encoding="utf-8")).items()}
        except (OSError, ValueError, AttributeError):
            if not run.finished:
                continue
            raise OffbeatError(f"cannot read {path}; run {run.label} with seed {run.seed} again") from None
        for package, version in content.items():
            known = versions.setdefault(package, [])
            if version not in known:
                known.append(version)
    return {package: ", ".join(known) for package, known in versions.items()}


def origin(runs: Sequence[Run]) -> str:
    """Return dates, machines and commits, as far as the runs' folders record them."""
    tables = [_read(run) for run in runs]
    days = sorted(table["finished"][:10] for table in tables if "finished" in table)
    parts = [" to ".join(dict.fromkeys((days[0], days[-1])))] if days else []
    for key in ("machine", "commit"):
        values = dict.fromkeys(table[key] for table in tables if key in table)
        name = "commit " if key == "commit" else ""
        parts += [f"{name}{'; '.join(values)}"] if values else []
    return " · ".join(parts)


def _read(run: Run) -> dict[str, str]:
    # An unfinished run may lack the file.
    try:
        content = json.loads((run.path / "timing.json").read_text(encoding="utf-8"))
        return {key: value for key, value in content.items() if isinstance(value, str)}
    except (OSError, ValueError, AttributeError):
        return {}
