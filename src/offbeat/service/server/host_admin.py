"""The admin's requests to a server of several runs."""

from pathlib import Path
from typing import Any

from offbeat_core.errors import OffbeatError
from offbeat_core.files import read_text

from offbeat.service.server.admin import ERASURE_SECONDS, NotListeningError, ask, number_of, runs
from offbeat.service.server.host_folder import RUNS
from offbeat.service.server.stopped_server import check_stopped


def status(folder: Path) -> dict[str, Any]:
    """Return the state of all runs.

    Those of a stopped server have only what their folders tell.
    """
    try:
        return ask(folder, "GET", "/v1/status")
    except NotListeningError as error:
        check_stopped(folder, str(error))
        found = runs(folder)
        listed = [{"name": run.folder.name, "algorithm": run.algorithm, "version": run.version} for run in found]
        return {"server": "stopped", "runs": listed}


def create(folder: Path, name: str, file: Path) -> dict[str, Any]:
    """Begin a run of a file; return it as lists show it."""
    try:
        text = read_text(file)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise OffbeatError(f"cannot read {file}: {reason}") from None
    return ask(folder, "POST", "/v1/runs", {"name": name, "file": text})


def folder_of(folder: Path, run: str) -> Path:
    """Return a run's folder; ``OffbeatError`` if there is none."""
    path = folder / RUNS / run
    if not path.is_dir():
        raise OffbeatError(f"{folder} does not hold a run {run!r}: offbeat server runs {folder} lists all")
    return path


def sites(folder: Path) -> list[dict[str, Any]]:
    """Return all sites, in the order of their numbers."""
    listed: list[dict[str, Any]] = []
    after: int | None = -1
    while after is not None:
        query = "" if after < 0 else f"&after={after}"
        page = ask(folder, "GET", f"/v1/sites?limit=1000{query}")
        listed += page["sites"]
        after = page["next"]
    return listed


def revoke_site(folder: Path, which: str) -> int:
    """Revoke a site, named by its name or number, in all runs; return its number."""
    number = _number(folder, which)
    ask(folder, "DELETE", f"/v1/sites/{number}")
    return number


def rename_site(folder: Path, which: str, name: str) -> int:
    """Give a site another name; return its number."""
    number = _number(folder, which)
    ask(folder, "POST", f"/v1/sites/{number}/rename", {"name": name})
    return number


def label_site(folder: Path, which: str, labels: list[str]) -> int:
    """Give a site these labels in place of those that it has; return its number."""
    number = _number(folder, which)
    ask(folder, "POST", f"/v1/sites/{number}/labels", {"labels": labels})
    return number


def forget_site(folder: Path, which: str) -> dict[str, Any]:
    """Delete what the server and its runs hold of a site; return the answer."""
    return ask(folder, "DELETE", f"/v1/sites/{_number(folder, which)}/data", seconds=ERASURE_SECONDS)


def _number(folder: Path, which: str) -> int:
    return number_of({site["site"]: site["name"] for site in sites(folder)}, which, "site")
