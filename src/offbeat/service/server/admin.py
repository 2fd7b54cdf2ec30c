"""What the admin asks a server on this machine, by its folder."""

import json
import sqlite3
import ssl
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
from safetensors import safe_open

from offbeat.errors import OffbeatError
from offbeat.service.store.model_files import numbers_of
from offbeat.tensor_file import write_tensors


@dataclass(frozen=True)
class Run:
    """A server's folder, whether its server runs or not."""

    folder: Path
    algorithm: str
    version: int
    counted: int
    listens: bool


def status(folder: Path) -> dict[str, Any]:
    """Return how far the run of a server is.

    Raises:
        OffbeatError: There is no such folder, or no server runs.
    """
    return _ask(folder, "GET", "/v1/status")


def tokens(folder: Path) -> list[dict[str, Any]]:
    """Return the enrolment and admin tokens of a server, without the tokens themselves.

    Raises:
        OffbeatError: There is no such folder, or no server runs.
    """
    return _ask(folder, "GET", "/v1/tokens")["tokens"]


def make_token(folder: Path, kind: str, *, uses: int | None, seconds: float | None, name: str) -> str:
    """Return a new enrolment or admin token.

    Raises:
        OffbeatError: There is no such folder, or no server runs.
    """
    wanted: dict[str, Any] = {"expires_seconds": seconds, "name": name}
    if kind == "enrolment":
        wanted["uses"] = uses
    return _ask(folder, "POST", f"/v1/{kind}-tokens", wanted)["token"]


def revoke(folder: Path, which: str) -> None:
    """Revoke a token by its id, or the tokens of a client, ``client-3``.

    Raises:
        OffbeatError: There is no such token or client, no such folder, or no server runs.
    """
    kind, _, number = which.partition("-")
    if kind == "client" and not number.isdecimal():
        raise OffbeatError(f"{which!r} is no client: write client-3 for client 3")
    _ask(folder, "DELETE", f"/v1/clients/{number}" if kind == "client" else f"/v1/tokens/{quote(which, safe='')}")


def _ask(folder: Path, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    url, token = (_kept(folder, name) for name in ("url", "admin-token"))
    ca = folder / "tls" / "ca.pem"
    verify = ssl.create_default_context(cafile=ca) if ca.exists() else True
    headers = {"Authorization": f"Bearer {token}"}
    try:
        answer = httpx.request(method, f"{url}{path}", json=body, headers=headers, verify=verify, timeout=10)
        if HTTPStatus.BAD_REQUEST <= answer.status_code < HTTPStatus.INTERNAL_SERVER_ERROR:
            raise OffbeatError(answer.json()["detail"])
        answer.raise_for_status()
        return answer.json() if answer.content else {}
    except (httpx.HTTPError, ValueError, LookupError) as error:
        raise OffbeatError(f"the server of {folder} does not answer at {url}: start it ({error})") from None


def runs(folder: Path) -> list[Run]:
    """Return the servers' folders in a folder, or the folder itself if it is one."""
    return [_run(path.parent) for path in _databases(folder)]


def newest_model(folder: Path) -> Path:
    """Return the file of the newest version of a server's model.

    Raises:
        OffbeatError: There is none.
    """
    versions = numbers_of(folder / "models")
    if not versions:
        raise OffbeatError(f"{folder} holds no model: is it the folder of a server that has run?")
    return folder / "models" / f"{max(versions)}.safetensors"


def export_model(folder: Path, output: Path) -> int:
    """Write the newest version of a server's model to a file, without what goes to clients beside it.

    Returns:
        The version.

    Raises:
        OffbeatError: There is none.
    """
    model = newest_model(folder)
    with safe_open(model, framework="pt") as file:
        layout: list[tuple[str, list[int]]] = json.loads(file.metadata()["layout"])
        tensors = {name: file.get_tensor(name) for name, _ in layout}
        with output.open("wb") as copy:
            write_tensors(copy, tensors, file.metadata())
    return int(model.stem)


def _databases(folder: Path) -> Iterable[Path]:
    own = folder / "offbeat.sqlite"
    return [own] if own.exists() else sorted(folder.glob("*/offbeat.sqlite"))


def _run(folder: Path) -> Run:
    try:
        with closing(sqlite3.connect(f"file:{folder / 'offbeat.sqlite'}?mode=ro", uri=True)) as database:
            (config,) = database.execute("SELECT value FROM meta WHERE key = 'config'").fetchone() or ("{}",)
        algorithm = json.loads(config).get("algorithm", {}).get("algorithm", "?")
    except (sqlite3.Error, ValueError) as error:
        raise OffbeatError(f"cannot read {folder / 'offbeat.sqlite'}: {error}") from None
    try:
        now = status(folder)
    except OffbeatError:
        return Run(folder, algorithm, max(numbers_of(folder / "models"), default=0), 0, listens=False)
    return Run(folder, algorithm, now["version"], now["counted"], listens=True)


def _kept(folder: Path, name: str) -> str:
    try:
        return (folder / name).read_text(encoding="ascii").strip()
    except OSError:
        raise OffbeatError(f"{folder} is no folder of a server that has run: it holds no {name}") from None
