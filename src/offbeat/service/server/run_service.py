"""A run that is served: its answers to requests, and its work beside them."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from offbeat_core.files import write_durably
from offbeat_core.serving.connections import Connections
from offbeat_core.serving.console_log import attached

from offbeat.service.accounts.accounts import Accounts
from offbeat.service.accounts.issued_tokens import IN_FOLDER
from offbeat.service.accounts.registry import Kind
from offbeat.service.audit.audit_log import AuditLog, start_facts
from offbeat.service.engine.engine import Engine
from offbeat.service.engine.erasure import Erasure
from offbeat.service.engine.evaluation_queue import EvaluationQueue
from offbeat.service.engine.leader import Leader
from offbeat.service.engine.lease_timer import LeaseTimer
from offbeat.service.engine.operations import Operations
from offbeat.service.engine.server_checkpoint import CheckpointSchedule, CheckpointWriter
from offbeat.service.front.front import Front
from offbeat.service.front.request_rate import RequestRate
from offbeat.service.http.http_app import make_app
from offbeat.service.internal.answers import DownloadPermission
from offbeat.service.masked.sum_opener import SumOpener
from offbeat.service.refusal import Refusal
from offbeat.service.server.common_end import CommonEnd
from offbeat.service.server_settings import ServerSettings
from offbeat.service.store.model_files import ModelFiles
from offbeat.service.updates.uploads import Uploads

_MIN_MODELS = 16  # a checkpoint is due by size after updates of at least so many models


class RunService:
    """The answers of a run to clients and people, over these connections.

    ``url`` is the server's, for people.

    Attributes:
        app: Answers all requests.
        leader: Answers the questions of fronts.
        front: That in this process.
    """

    def __init__(
        self,
        settings: ServerSettings,
        service: Operations,
        checkpoints: CheckpointWriter,
        connections: Connections,
        url: str,
    ) -> None:
        engine = service.engine
        self.service = service
        self._checkpoints = checkpoints
        self.leader = Leader(service)
        self.front = Front(
            self.leader,
            Uploads(settings.folder, settings.upload_budget),
            RequestRate(settings.service.requests_a_second, settings.burst),
            partial(_model_file, engine.models),
            engine.disk.refusal,
            engine.shared,
            is_presigned=settings.store is not None and settings.store.presigned,
        )
        service.erasure = Erasure(engine, service.accounts, checkpoints, self.front.uploads, settings.folder)
        self.app = make_app(service, self.front, connections, url)
        self._schedule = CheckpointSchedule(
            engine,
            checkpoints,
            seconds=settings.service.checkpoint_seconds,
            max_bytes=max(settings.checkpoint_bytes, _MIN_MODELS * 4 * engine.models.length),
        )
        self._timer = LeaseTimer(engine)
        self._opener = None
        if settings.privacy is not None and settings.privacy.helper is not None:
            self._opener = SumOpener(engine, settings.privacy.helper, settings.folder / "updates")

    def start(self, end: CommonEnd) -> None:
        """Begin the work beside requests, until the end comes."""
        engine = self.service.engine
        for work in (self._timer.run(), self._schedule.run(), self.service.progress.run()):
            end.start(work)
        end.start(self.service.accounts.audit.flush_regularly())
        end.start(self.service.erasure.run())
        if engine.run.best is not None:
            end.start(engine.run.best.run())
        if self._opener is not None:
            end.start(self._opener.run())

    def stop(self) -> None:
        """Give out no more work."""
        self.service.is_ready = False
        self.service.engine.stop()

    async def finish(self) -> None:
        """Write what is left, once no request and no task is under way."""
        audit = self.service.accounts.audit
        audit.flush()
        audit.add("server stopped")
        with suppress(OSError, Refusal):
            await self._checkpoints.write()


async def _model_file(models: ModelFiles, found: DownloadPermission) -> Path:
    return models.path(found.version)


async def open_service(
    settings: ServerSettings, engine: Engine, make_accounts: Callable[..., Accounts] = Accounts
) -> Operations:
    """Return the operations of a run; its audit log has its start now."""
    audit = AuditLog(engine.log_writer, engine.state)
    accounts = make_accounts(
        engine.state.registry,
        engine.log_writer,
        audit,
        clients_limit=engine.coordinator.clients,
        token_seconds=settings.service.token_seconds,
        max_examples=settings.service.max_examples,
        keeps_examples=settings.privacy is None,
    )
    audit.add("server started", run=engine.run.state.run_id, **start_facts(settings))
    service = Operations(engine, accounts, settings)
    await service.weigh_clients()  # in case the last server ended just before
    return service


async def folder_token(folder: Path, accounts: Accounts, kind: Kind, *, is_shared: bool) -> str:
    """Return the token in the folder's file, new if need be; revoke all others.

    Where several servers share the log, each has a file of its own, and none is revoked.
    """
    path, token = folder / f"{kind}-token", None
    with suppress(FileNotFoundError, ValueError):
        found = path.read_text(encoding="ascii").strip()
        token = found if accounts.is_valid(found, kind) else None
    if not is_shared:
        accounts.issued.keep_in_folder(kind, token)
    if token is None:
        token = accounts.issued.make(kind, name=IN_FOLDER)
        await accounts.wait_until_durable()
        write_durably(path, f"{token}\n".encode("ascii"), mode=0o600)
    await accounts.wait_until_durable()
    return token


@asynccontextmanager
async def beside_requests(service: Operations) -> AsyncGenerator[None]:
    """Send messages, evaluate versions, and keep the log's lines, within the context."""
    settings, engine = service.settings, service.engine
    async with _sending_messages(settings, engine), _evaluating(settings, engine):
        with attached(service.lines):
            yield


@asynccontextmanager
async def _evaluating(settings: ServerSettings, engine: Engine) -> AsyncGenerator[None]:
    """Evaluate versions within the context, also the newest of an earlier server."""
    if settings.evaluate_every is None or not settings.evaluate_command:
        yield
        return
    evaluations = engine.publisher.evaluations = EvaluationQueue(
        settings.folder,
        engine.models,
        engine.log_writer.wait_until_durable,
        settings.evaluate_every,
        settings.evaluate_command,
        engine.run.note_evaluation,
    )
    newest = engine.coordinator.algorithm.version
    if evaluations.lacks(newest):
        with suppress(OSError, Refusal):  # a full disk must not keep the server from its start
            await engine.publisher.publish()
            evaluations.add(newest)
    async with _beside(evaluations.run()):
        yield


@asynccontextmanager
async def _sending_messages(settings: ServerSettings, engine: Engine) -> AsyncGenerator[None]:
    """Send messages about events within the context, if there is a webhook."""
    if settings.webhook is None:
        yield
        return
    from offbeat.service.webhook.webhook import Webhook  # with an HTTP client, which servers do without

    webhook = Webhook(settings.webhook, str(engine.run.state.run_id))
    with attached(webhook):
        async with _beside(webhook.run()):
            yield


@asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncGenerator[None]:
    """Do work that never ends beside what is done within the context."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
