"""The servers that share a store, its latencies, and the run in it."""

import asyncio
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_bytes, token_hex
from typing import Any

from offbeat_core.errors import OffbeatError

from offbeat.service.blobs.blobs import Blobs
from offbeat.service.log.log import BEST
from offbeat.service.log.place import OWNER as PLACE
from offbeat.service.log.place import target_of
from offbeat.service.log.signs_of_life import SeenServer
from offbeat.service.log.tables import is_rare, log
from offbeat.service.server import stopped_server
from offbeat.service.store.server_state import ServerState
from offbeat.service.store.shared_files import model_name
from offbeat.service.store.shared_store import SharedStore, opened_shared
from offbeat.service.store_settings import StoreSettings

_ALIVE_SECONDS = 3.0  # since the last sign of life, of which there is one a second
_PROBE_BYTES = 1024


def status(settings: StoreSettings, live: dict[str, Any] | None) -> dict[str, Any]:
    """Return the servers, the store's latencies, and the run's progress.

    ``live`` is the progress as the leader answers; None: it is made from the store.
    """
    with opened_shared(settings) as store:
        servers, last = store.log.servers_now(), store.log.last_number_now()
        leader = next((server for server in servers if server.sign.leads), None)
        lives = leader is not None and is_alive(leader)
        target = target_of(store.log.newest_now(PLACE))
        return {
            **({} if lives else {"server": "stopped" if target is None else f"moved to {target}"}),
            "leader": None if leader is None else _leader_line(leader),
            "standby": [
                _standby_line(server, last) for server in servers if not server.sign.leads and is_alive(server)
            ],
            "log": f"{settings.log}, row {last}, answers in {store.log.answer_seconds_now() * 1000:.1f} ms",
            "blobs": f"{settings.blobs}, {asyncio.run(_latencies(store.blobs))}",
            **(_saved(store) if live is None else live),
        }


def is_alive(server: SeenServer) -> bool:
    """Return whether a server has shown itself of late."""
    return server.silent_seconds < _ALIVE_SECONDS


def clients(settings: StoreSettings) -> list[dict[str, Any]]:
    """Return the clients at the end of the log, as in ``ListedClient``."""
    with opened_shared(settings) as store:
        return stopped_server.listed(store.state()[0])


def saved_state(settings: StoreSettings) -> ServerState:
    """Return the state at the end of the log."""
    with opened_shared(settings) as store:
        return store.state()[0]


def leader_name(settings: StoreSettings) -> str | None:
    """Return the name of the machine that leads; None if none does."""
    with opened_shared(settings) as store:
        servers = store.log.servers_now()
    return next((server.sign.name for server in servers if server.sign.leads and is_alive(server)), None)


def audit_rows(settings: StoreSettings) -> Iterator[tuple[str | None, str | None]]:
    """Yield the entries of the audit log, each with the head behind it."""
    with opened_shared(settings) as store:
        for row in store.log.read_now(is_rare & log.c.head.is_not(None)):
            yield row.entry, row.head


@contextmanager
def stored_model(store: SharedStore, *, is_best: bool = False) -> Generator[tuple[int, Path]]:
    """Lend the newest or the best version of the model in the blobs, and its file."""
    if is_best:
        best = store.log.newest_now(BEST)
        if best is None:
            raise OffbeatError(stopped_server.NO_BEST)
        version, digest = best.values["version"], best.values["sha256"]
        with store.file(model_name(version, digest), digest) as file:
            yield version, file
        return
    checkpoint = store.checkpoint()
    if checkpoint is None:
        raise OffbeatError(f"{store.settings.log} does not hold a checkpoint yet: wait until a server has started")
    version = max(map(int, checkpoint["models"]))
    with store.file(*checkpoint["models"][str(version)]) as file:
        yield version, file


def _saved(store: SharedStore) -> dict[str, Any]:
    checkpoint = store.checkpoint()
    version = 0 if checkpoint is None else max(map(int, checkpoint["models"]))
    return stopped_server.progress(*store.state(), version)


def _leader_line(server: SeenServer) -> str:
    return f"{server.sign.name}, epoch {server.sign.epoch}, {_life(server, 'led')}"


def _standby_line(server: SeenServer, last: int) -> str:
    behind = max(0, last - server.sign.number)
    return f"{server.sign.name}, {behind} row{'' if behind == 1 else 's'} behind, {_life(server, 'followed')}"


def _life(server: SeenServer, verb: str) -> str:
    """Return how long a server has led or followed, and when it was last seen."""
    if is_alive(server):
        return f"has {verb} for {_duration(server.since_seconds)}"
    return f"silent for {_duration(server.silent_seconds)}"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


async def _latencies(blobs: Blobs) -> str:
    """Return how long it takes to write, read and delete a small blob."""
    name, times = f"probe/{token_hex(16)}", list[float]()
    try:
        began = time.perf_counter()
        await blobs.create(name, token_bytes(_PROBE_BYTES))
        times.append(time.perf_counter() - began)
        began = time.perf_counter()
        await asyncio.to_thread(blobs.fetch, name)
        times.append(time.perf_counter() - began)
    finally:
        began = time.perf_counter()
        with suppress(Exception):
            await blobs.delete(name)
        times.append(time.perf_counter() - began)
    return ", ".join(f"{verb} {each * 1000:.1f} ms" for verb, each in zip(("put", "get", "delete"), times, strict=True))
