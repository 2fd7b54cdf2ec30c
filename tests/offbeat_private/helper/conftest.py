"""A helper's clients: keys, records, and a folder that is enrolled."""

import asyncio
import hashlib
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from offbeat_private.helper.helper import Helper
from offbeat_private.helper.helper_server import serve
from offbeat_private.helper.roster import NewRun, enrol, parse_roster
from offbeat_private.masks.envelope import Binding, seal
from offbeat_private.masks.helper_facts import Head, verify_epoch_key
from offbeat_private.masks.signing_key import public_text
from offbeat_private.signed_terms import Terms

PORT = 0  # any free one
CLIENTS = 8
KEYS = [Ed25519PrivateKey.from_private_bytes(bytes([1 + number] * 32)) for number in range(CLIENTS)]
CLIENT_KEYS = [key.public_key().public_bytes_raw() for key in KEYS]
TERMS: dict[str, Any] = {
    "length": 40,
    "buffer": 4,
    "min_clients": 3,
    "clip_norm": 1.0,
    "noise_multiplier": 0.5,
    "max_participations": 5,
    "min_separation": 1,
    "bits": 20,
    "delta": 1e-5,
}
LOCAL: dict[str, Any] = {"steps": 3, "batch_size": 2, "lr": 0.1}


def seed_of(client: int, visit: int) -> bytes:
    """Return the mask's seed of a visit."""
    return hashlib.sha256(f"{client} {visit}".encode()).digest()


def make_record(
    terms: Terms,
    head: Head,
    head_signature: bytes,
    epoch: int,
    public_key: bytes,
    client: int,
    visit: int,
    start: int | None = None,
    /,
    **changes: Any,
) -> bytes:
    """Return the record of a client's visit, which starts from version ``visit`` unless ``start`` says otherwise."""
    binding = Binding(
        terms=terms.digest,
        run=terms.run,
        client=CLIENT_KEYS[client],
        visit=visit,
        start_version=visit if start is None else start,
        version=head.number,
        model=bytes(32),
        vector=bytes(32),
        head_number=head.number,
        head=head.digest,
        epoch=epoch,
    )
    return seal(seed_of(client, visit), public_key, binding._replace(**changes), head_signature, KEYS[client])


def records_for(helper: Helper, visits: dict[int, int], **changes: Any) -> list[bytes]:
    """Return records of these visits, by client, as they are made when a helper has announced its facts."""
    facts = helper.facts()
    key = verify_epoch_key(facts.epoch_key, helper.terms)
    assert key.epoch == facts.epoch
    return [
        make_record(helper.terms, facts.head, facts.signature, facts.epoch, key.public_key, client, visit, **changes)
        for client, visit in visits.items()
    ]


def enrol_clients(folder: Path, clients: int = CLIENTS, *, local: dict[str, Any] = LOCAL, **terms: Any) -> NewRun:
    """Begin a run in a folder."""
    names = {f"client-{number}": public_text(key) for number, key in enumerate(KEYS[:clients])}
    roster = parse_roster({"terms": TERMS | terms, "local": local, "clients": names}, Path("roster.toml"))
    return enrol(roster, folder, ["localhost", "127.0.0.1"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of an enrolled helper."""
    enrol_clients(tmp_path / "helper")
    return tmp_path / "helper"


@contextmanager
def running(folder: Path) -> Generator[str]:
    """Run the helper of a folder over HTTPS in a thread; yield its URL."""
    ready: Future[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def run() -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        await serve(folder, "127.0.0.1", PORT, ready=lambda url: ready.set_result((url, loop, stop)), stop=stop)

    with ThreadPoolExecutor(1) as pool:
        served = pool.submit(asyncio.run, run())
        served.add_done_callback(lambda done: ready.done() or ready.set_exception(done.exception() or RuntimeError()))
        url, loop, stop = ready.result(30)
        try:
            yield url
        finally:
            loop.call_soon_threadsafe(stop.set)
            served.result(30)
