"""Settings and package versions of the runs on a page."""

import json
from collections.abc import Sequence

import tomli_w

from offbeat.errors import OffbeatError
from offbeat.runs.directory import Run
from offbeat.runs.settings import by_label


def configurations(runs: Sequence[Run]) -> dict[str, str]:
    """Return the configuration of each label as TOML, with the seeds of all its runs."""
    return {
        label: tomli_w.dumps({**group[0].config, "seeds": [run.seed for run in group]})
        for label, group in by_label(runs).items()
    }


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
