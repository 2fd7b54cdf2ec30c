"""The admin's requests to the server of a folder, or to the folder itself."""

import json
import re
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
from offbeat_core.errors import OffbeatError
from offbeat_core.http.service_errors import one_line
from offbeat_core.http.tls import CLOCKS, is_outside_its_dates

from offbeat.service.log.log import RUN
from offbeat.service.server import stopped_server
from offbeat.service.server.addresses import trust
from offbeat.service.server.host_folder import host_of, run_folders
from offbeat.service.store.database import RARE, best_version, numbers_of, opened
from offbeat.service.store_settings import FILE as STORE
from offbeat.service.store_settings import StoreSettings, noted_shared_store

ERASURE_SECONDS = 300.0  # a checkpoint of a large model, and the time for which a standby may read the one before
_OTHERS = "; if it stands by, run this on the machine that leads, which offbeat server status names"


@dataclass(frozen=True)
class ServerRun:
    """The run in a server's folder."""

    folder: Path
    algorithm: str
    version: int  # the newest one
    counted: int  # updates; 0 while no server runs
    listens: bool
    state: str = "does not run"  # if it does not listen


class NotListeningError(OffbeatError):
    """A server that does not answer at its address."""


def live_status(folder: Path) -> dict[str, Any]:
    """Return the progress of a running server's run."""
    return ask(folder, "GET", "/v1/status")


def status(folder: Path, store: StoreSettings | None = None) -> dict[str, Any]:
    """Return the progress of a server's run, also of a stopped one and of a backup.

    ``store`` is the one that it shares with other servers.
    """
    if store is not None:
        live = None
        with suppress(OffbeatError):  # then the log says it
            live = live_status(folder)
        from offbeat.service.server import shared_server  # which takes a second longer to import

        return shared_server.status(store, live)
    try:
        return live_status(folder)
    except NotListeningError as error:
        stopped_server.check_stopped(folder, str(error))
        return stopped_server.status(folder)


@dataclass(frozen=True)
class Clients:
    """The clients of a server, in the order of their numbers, as in ``ListedClient``."""

    listens: bool
    clients: list[dict[str, Any]]


def clients(folder: Path, store: StoreSettings | None = None) -> Clients:
    """Return the clients of a server, also of a stopped one and of a backup."""
    try:
        return Clients(True, _listed(folder))
    except NotListeningError as error:
        if store is not None:
            from offbeat.service.server import shared_server

            return Clients(shared_server.leader_name(store) is not None, shared_server.clients(store))
        stopped_server.check_stopped(folder, str(error))
        return Clients(False, stopped_server.clients(folder))


def revoke_client(folder: Path, which: str) -> int:
    """Revoke a client, named by its name or number; return its number."""
    number = _number(_listed(folder), which)
    ask(folder, "DELETE", f"/v1/clients/{number}")
    return number


def forget_client(folder: Path, which: str) -> dict[str, Any]:
    """Delete what a server holds of a client; return the answer, a ``Forgotten``."""
    number = _number(_listed(folder), which)
    return ask(folder, "DELETE", f"/v1/clients/{number}/data", seconds=ERASURE_SECONDS)


def rename_client(folder: Path, which: str, name: str) -> int:
    """Give a client another name; return its number."""
    number = _number(_listed(folder), which)
    ask(folder, "POST", f"/v1/admin/clients/{number}/rename", {"name": name})
    return number


def set_paused(folder: Path, *, is_paused: bool) -> None:
    """Pause or resume a server's run."""
    ask(folder, "POST", "/v1/admin/pause" if is_paused else "/v1/admin/resume")


def extend(folder: Path, versions: int) -> dict[str, Any]:
    """Let a server's run end at a later version; return the answer."""
    return ask(folder, "POST", "/v1/admin/extend", {"versions": versions})


def grow(folder: Path, clients: int) -> int:
    """Let a server's run have more clients; return how many."""
    return ask(folder, "POST", "/v1/admin/grow", {"clients": clients})["clients"]


def end(folder: Path) -> dict[str, Any]:
    """End a server's run at its newest version; return the answer."""
    return ask(folder, "POST", "/v1/admin/end")


def _listed(folder: Path) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = []
    after: int | None = -1
    while after is not None:
        query = "" if after < 0 else f"&after={after}"
        page = ask(folder, "GET", f"/v1/admin/clients?limit=1000{query}")
        listed += page["clients"]
        after = page["next"]
    return listed


def _number(listed: list[dict[str, Any]], which: str) -> int:
    return number_of({client["client"]: client["name"] for client in listed}, which, "client")


def number_of(names: Mapping[int, str], which: str, what: str) -> int:
    """Return the number of a client or a site, given by name or number.

    ``client-3``, with ``what`` before the number, is number 3.
    """
    digits = re.fullmatch(rf"{what}-([0-9]{{1,18}})", which)
    if digits is not None:
        found = {number for number in names if number == int(digits[1])}
    else:
        found = {number for number, name in names.items() if which in (name, str(number))}
    if not found:
        raise OffbeatError(f"there is no {what} {which!r}: offbeat server {what}s lists names and numbers")
    if len(found) > 1:
        numbers = ", ".join(f"{what}-{number}" for number in sorted(found)[:10])
        raise OffbeatError(f"{which!r} may be several {what}s: write one of {numbers}")
    return found.pop()


def tokens(folder: Path) -> list[dict[str, Any]]:
    """Return the records of all tokens but the clients', without the tokens."""
    return ask(folder, "GET", "/v1/tokens")["tokens"]


def make_token(
    folder: Path, kind: str, *, uses: int | None, seconds: float | None, name: str, labels: Sequence[str] = ()
) -> str:
    """Return a new token of a kind; sites that enrol with it get the labels."""
    wanted: dict[str, Any] = {"kind": kind, "uses": uses, "expires_seconds": seconds, "name": name}
    if labels:
        wanted["labels"] = list(labels)
    return ask(folder, "POST", "/v1/tokens", wanted)["token"]


def revoke_token(folder: Path, token_id: str) -> None:
    """Revoke a token."""
    ask(folder, "DELETE", f"/v1/tokens/{quote(token_id, safe='')}")


def ask(
    folder: Path, method: str, path: str, body: dict[str, Any] | None = None, seconds: float = 10.0
) -> dict[str, Any]:
    """Return the answer of a folder's server to a request; ``OffbeatError``."""
    folder, prefix = host_of(folder)
    url, token = (_read(folder, name) for name in ("url", "admin-token"))
    headers = {"Authorization": f"Bearer {token}"}
    verify = trust(folder) if url.startswith("https:") else False  # loading the system's certificates takes time
    try:
        url += prefix
        answer = httpx.request(method, f"{url}{path}", json=body, headers=headers, verify=verify, timeout=seconds)
        if answer.headers.get("content-type") == "application/problem+json":
            problem = answer.json()
            if problem["kind"] == "unknown-token":
                raise NotListeningError(
                    f"the server at {url} does not know {folder / 'admin-token'}: another folder's server may have "
                    f"taken the port; start the server of {folder}"
                )
            raise OffbeatError(problem["detail"])
        answer.raise_for_status()
        return answer.json() if answer.content else {}
    except httpx.ConnectError as error:
        remedy = CLOCKS if is_outside_its_dates(error) else "start it, or wait if it is starting"
        remedy += _OTHERS if (folder / STORE).exists() else ""
        raise NotListeningError(f"the server of {folder} does not answer at {url}: {remedy} ({error})") from None
    except (httpx.HTTPError, ValueError, LookupError) as error:
        raise OffbeatError(
            f"the server of {folder} does not answer as expected at {url}: wait, or look at its log "
            f"({one_line(str(error))})"
        ) from None


def runs(folder: Path) -> list[ServerRun]:
    """Return the runs of a server's folder, or of all servers' folders in a folder."""
    names = ("offbeat.sqlite", STORE)
    folders = [folder] if any((folder / name).exists() for name in names) else []
    folders = folders or sorted({path.parent for name in names for path in folder.glob(f"*/{name}")})
    return [_run(run) for each in folders for run in run_folders(each)]


def newest_model(folder: Path) -> Path:
    """Return the file of the newest version of a server's model."""
    versions = numbers_of(folder / "models")
    if not versions:
        raise OffbeatError(f"{folder} does not hold a model: is it the folder of a server that has run?")
    return folder / "models" / f"{max(versions)}.safetensors"


def best_model(folder: Path) -> Path:
    """Return the file of the version that a server keeps as the best."""
    try:
        with opened(folder) as database:
            best = best_version(database)
    except (sqlite3.Error, ValueError) as error:
        raise OffbeatError(f"cannot read {folder / 'offbeat.sqlite'}: {error}") from None
    if best is None:
        raise OffbeatError(stopped_server.NO_BEST)
    return folder / "models" / f"{best['version']}.safetensors"


def export_model(folder: Path, output: Path, store: StoreSettings | None = None, *, is_best: bool = False) -> int:
    """Write the parameters of a server's newest or best version; return the version."""
    if store is not None:
        from offbeat.service.server import shared_server
        from offbeat.service.store.shared_store import opened_shared

        with (
            opened_shared(store) as opened_store,
            shared_server.stored_model(opened_store, is_best=is_best) as (version, model),
        ):
            _export(model, output)
            return version
    while True:
        model = best_model(folder) if is_best else newest_model(folder)
        try:
            _export(model, output)
        except FileNotFoundError:  # a server that makes versions deletes old ones
            if model.exists() or (is_best and best_model(folder) == model):
                raise
        else:
            return int(model.stem)


def _export(model: Path, output: Path) -> None:
    # Imported here, because torch takes seconds, and only an export needs it.
    from safetensors import safe_open

    from offbeat.tensor_file import write_tensors

    with safe_open(model, framework="pt") as file:
        layout: list[tuple[str, list[int]]] = json.loads(file.metadata()["layout"])
        tensors = {name: file.get_tensor(name) for name, _ in layout}
        with output.open("wb") as copy:
            write_tensors(copy, tensors, file.metadata())


def _run(folder: Path) -> ServerRun:
    store = noted_shared_store(folder)
    algorithm = _algorithm(folder) if store is None else None
    try:
        now = live_status(folder)
    except OffbeatError:
        if store is not None:
            return _shared_run(folder, store)
        return ServerRun(folder, algorithm or "?", max(numbers_of(folder / "models"), default=0), 0, listens=False)
    return ServerRun(folder, algorithm or now["algorithm"], now["version"], now["counted"], listens=True)


def _algorithm(folder: Path) -> str:
    try:
        with opened(folder) as database:
            query = f"SELECT arguments FROM log WHERE {RARE} AND owner = ? AND name = 'begin'"
            (begun,) = database.execute(query, (RUN,)).fetchone() or ('{"config": {}}',)
        return json.loads(begun)["config"].get("algorithm", {}).get("algorithm", "?")
    except (sqlite3.Error, ValueError) as error:
        raise OffbeatError(f"cannot read {folder / 'offbeat.sqlite'}: {error}") from None


def _shared_run(folder: Path, store: StoreSettings) -> ServerRun:
    from offbeat.service.server import shared_server

    saved = shared_server.status(store, None)
    state = "does not run" if saved.get("server") == "stopped" else f"led by {saved['leader'].partition(',')[0]}"
    return ServerRun(folder, saved["algorithm"], saved["saved_version"], saved["counted"], listens=False, state=state)


def _read(folder: Path, name: str) -> str:
    try:
        return (folder / name).read_text(encoding="ascii").strip()
    except OSError:
        raise NotListeningError(
            f"{folder} is not the folder of a server that has run: it does not hold {name}; start the server, or name "
            f"its service.folder{_OTHERS if (folder / STORE).exists() else ''}"
        ) from None
