"""Every system call on the service's folder fails once: nothing acknowledged is lost or doubled, no version changes."""

import asyncio
import errno
import hashlib
import json
import os
import sqlite3
from collections import defaultdict
from contextlib import closing
from random import SystemRandom
from types import SimpleNamespace

import pytest
import torch
from offbeat_core.errors import OffbeatError
from offbeat_core.messages import PROTOCOL
from safetensors.torch import load

from offbeat.algorithms import FedBuff
from offbeat.algorithms.components.weights import constant
from offbeat.coordinator import Coordinator
from offbeat.service.audit.verification import LogHead
from offbeat.service.engine.leader import Leader
from offbeat.service.engine.operations import Operations
from offbeat.service.engine.start_up import open_engine
from offbeat.service.front.front import Caller, Front, UploadRequest
from offbeat.service.log import log_writer
from offbeat.service.refusal import Refusal
from offbeat.service.server_settings import ServerSettings, ServiceSettings
from offbeat.service.store.store import Store
from offbeat.service.updates.update_header import UpdateHeader
from offbeat.service.updates.uploads import Uploads
from tests.service.conftest import LAYOUT, LENGTH, PLAN, body_of
from tests.service.faults import ERRORS, Faults
from tests.service.http_client import check_log

CLIENTS = 3
TURNS = 3
TRIES = 40
STRIDE = 20  # of the calls that fail, from a random one on; ``make faults`` lets all of them fail
OPEN = os.open  # which does not fail


def vector_of(client, visit):
    return torch.randn(LENGTH, generator=torch.Generator().manual_seed(100 * client + visit))


# Lets everybody in.
ACCOUNTS = SimpleNamespace(
    examples=SimpleNamespace(check=lambda *_: None, is_known=lambda _: True, of=lambda _: 1),
    check_client=lambda _: None,
    check_hash=lambda token, _: int(token, 16),
    audit=SimpleNamespace(head=LogHead()),
    sites=defaultdict(lambda: SimpleNamespace(forgotten=None)),
)


class Ended(Exception):  # noqa: N818 - it is not an error of the test's
    """The server has ended, as it may."""


class FailedStart(Exception):  # noqa: N818 - the same
    """The server has not started, in one line."""


class Run:
    """Clients and a server without sockets, which is started again when it has ended.

    Attributes:
        told: By client and visit, whether an acknowledged update counted.
        read: What clients read of each version.
        ends: How often the server ended, once it ran.
        failed_starts: How often it did not start.
    """

    def __init__(self, folder):
        self.folder = folder
        self.told = {}
        self.read = {}
        self.ends = self.failed_starts = 0

    async def live(self, turns):
        """Let the clients work so many turns, however often the server ends."""
        left = [(turn, client) for turn in range(turns) for client in range(CLIENTS)]
        while True:
            try:
                await self._serve(left)
                return
            except (Ended, OSError, OffbeatError):
                self.ends += 1
            except FailedStart:
                self.failed_starts += 1
            assert self.ends + self.failed_starts < 3

    async def _serve(self, left):
        failures = []
        store = Store(self.folder, failures.append)
        settings = ServerSettings(folder=self.folder, service=ServiceSettings(seed=7))
        engine = None
        try:
            coordinator = Coordinator(
                FedBuff(buffer_size=2, concurrency=4, staleness=constant()),
                torch.zeros(LENGTH), clients=CLIENTS, local=PLAN, seed=7,
            )  # fmt: skip
            try:
                engine, checkpoints = await open_engine(store, coordinator, LAYOUT, settings, failures.append)
            except (Refusal, OSError, OffbeatError) as error:
                raise FailedStart from error
            service = Operations(engine, ACCOUNTS, settings)
            front = Front(Leader(service), Uploads(self.folder, 2**20), None, None, engine.disk.refusal)
            while left:
                turn, client = left[0]
                await self._turn(service, front, checkpoints, client, failures)
                left.pop(0)
                if (turn + client) % 3 == 1:
                    await self._checkpoint(checkpoints, engine, failures)
        finally:
            if engine is not None:
                await engine.close()
            store.close()

    async def _turn(self, service, front, checkpoints, client, failures):
        caller = Caller(f"{client:064x}", lambda: None, PROTOCOL)
        visit = (await self._insist(service.engine, checkpoints, failures, lambda: front.check_in(caller, 0.0))).visit
        assert visit is not None
        self._note_read(service, visit.version)
        body = body_of(vector_of(client, visit.number))
        head = UpdateHeader(
            version=visit.version, bytes=len(body), sha256=hashlib.sha256(body).hexdigest(), examples=1, steps=2,
            normaliser=2.0, since=visit.since, model_sha256=visit.model_sha256,
        )  # fmt: skip

        async def put(begin, end):
            part = body[begin:end]
            return await front.upload(UploadRequest(caller, visit.number, head, begin, len(part), pieces(part)))

        async def send():
            offset = 0
            if client == 1:  # as large ones are sent
                state = await front.upload_state(caller, visit.number)
                offset = state.offset
                if state.wanted and offset == 0:
                    offset = (await put(0, 10)).offset
            return await put(offset, len(body))

        receipt = (await self._insist(service.engine, checkpoints, failures, send)).receipt
        self.told[client, visit.number] = receipt.counted

    async def _insist(self, engine, checkpoints, failures, ask):
        """Ask until there is an answer, as a client does, while the server's other tasks do their work."""
        for _ in range(TRIES):
            try:
                return await ask()
            except Refusal as refusal:
                if failures or refusal.kind == "stopping":
                    raise Ended from None
                if refusal.kind not in ("no-space", "busy", "wrong-offset"):
                    raise
                await asyncio.sleep(0.01)
                if engine.disk.problem and not engine.log_writer.is_blocked:
                    engine.disk.keep_reserve(checkpoints.reserve_size)
        raise AssertionError("the server does not recover")

    async def _checkpoint(self, checkpoints, engine, failures):
        try:
            await checkpoints.write()
        except OSError as error:
            engine.disk.refusal(error)
        except Refusal:
            pass
        if failures:
            raise Ended

    def _note_read(self, service, version):
        models = service.engine.models
        for path in map(models.path, {version, *models.versions()}):
            with open(OPEN(path, os.O_RDONLY), "rb") as file:  # noqa: PTH123
                content = file.read()
            assert self.read.setdefault(path.name, content) == content

    def check(self):
        """Check the folder and what clients know against each other."""
        check_log(self.folder)
        with closing(sqlite3.connect(self.folder / "offbeat.sqlite")) as database:
            rows = database.execute(
                "SELECT arguments, digest FROM log WHERE name = 'receive' ORDER BY number"
            ).fetchall()
        visits = [(json.loads(text)["client"], json.loads(text)["visit"]) for text, _ in rows]
        assert len(set(visits)) == len(visits)
        assert {visit for visit, counted in self.told.items() if counted} <= set(visits)
        model, models = torch.zeros(LENGTH), [torch.zeros(LENGTH)]
        for first, second in zip(visits[::2], visits[1::2], strict=False):
            model = model - (vector_of(*first) + vector_of(*second)) / 2
            models.append(model)
        for name, content in self.read.items():
            weights = load(content)
            found = torch.cat([weights[name].view(-1) for name, _ in LAYOUT])
            torch.testing.assert_close(found, models[int(name.partition(".")[0])])


async def pieces(body):
    yield body


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(log_writer, "_RETRY_SECONDS", 0.005)


def run_with(folder, kind, number=None, error=0):
    faults, run = Faults(folder, kind, number, error), Run(folder)
    with faults.on():
        asyncio.run(run.live(TURNS))
    asyncio.run(run.live(1))  # it can be started again, and goes on
    run.check()
    assert len(run.told) == CLIENTS * (TURNS + 1)
    return faults, run


@pytest.mark.parametrize(("kind", "error"), [(kind, error) for kind, errors in ERRORS.items() for error in errors])
def test_whichever_call_fails_nothing_is_lost(kind, error, tmp_path):
    counted, undisturbed = run_with(tmp_path / "undisturbed", kind)
    assert undisturbed.ends == 0
    assert counted.count > 3
    stride = 1 if os.environ.get("OFFBEAT_FAULTS") else STRIDE
    for number in range(SystemRandom().randrange(stride), counted.count, stride):
        faults, run = run_with(tmp_path / str(number), kind, number, error)
        if error in (errno.EMFILE, errno.ENOSPC) and faults.hit and run.ends:
            pytest.fail(f"the server ended, although {kind} number {number} on {faults.hit} may succeed later")
