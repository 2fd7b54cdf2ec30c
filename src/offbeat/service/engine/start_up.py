"""The start of an engine: the last checkpoint, the log's later rows, the lead."""

import asyncio
import json
import logging
import secrets
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

from offbeat_core.serving.console_log import event

from offbeat.coordinator import Coordinator
from offbeat.service.client_evaluation.client_evaluations import OWNER as EVALUATIONS
from offbeat.service.client_evaluation.client_evaluations import ClientEvaluations, ClientEvaluationSettings
from offbeat.service.engine.best_keeper import BestKeeper
from offbeat.service.engine.engine import Engine
from offbeat.service.engine.evaluation_queue import delete_links
from offbeat.service.engine.live_run import LiveRun
from offbeat.service.engine.replay import Replay
from offbeat.service.engine.server_checkpoint import CheckpointWriter
from offbeat.service.engine.standby import lead_at_once, take_lead
from offbeat.service.log.log import RUN, Change, Row
from offbeat.service.log.log_writer import LogWriter
from offbeat.service.log.place import OWNER as PLACE
from offbeat.service.log.place import found, is_elsewhere
from offbeat.service.log.show_life import show_life
from offbeat.service.log.sql_log import SqlLog
from offbeat.service.log.tables import is_rare, log
from offbeat.service.log.term import Term
from offbeat.service.masked.masked_shares import MaskedShares
from offbeat.service.server_settings import ServerSettings
from offbeat.service.store.disk import UnreachableFilesError
from offbeat.service.store.model_files import Layout
from offbeat.service.store.server_state import RunState, check_config
from offbeat.service.store.store import Store
from offbeat.service.updates.uploads import clean_up

_PATIENCE_SECONDS = 10.0  # for a shared log that fails just after the lead was taken


def _begin_life(log: SqlLog, log_writer: LogWriter, failed: Callable[[BaseException], None]) -> asyncio.Task[None]:
    places = [log.newest_now(PLACE)]

    def note_sign() -> None:
        log_writer.note_sign()
        here = log.place
        if here is None or (places[-1] is not None and not is_elsewhere(places[-1], here)):
            return
        # The append shows that the last row is there: after a failover, too, nothing acknowledged is missing.
        change = found(here)
        log_writer.enter(change)
        places.append(Row(log_writer.number, log_writer.epoch, *change[:2], json.dumps(change.arguments)))

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            failed(error)

    note_sign()
    life = asyncio.create_task(show_life(log, log_writer.epoch, socket.gethostname(), note_sign))
    life.add_done_callback(ended)
    return life


async def open_engine(
    store: Store,
    coordinator: Coordinator,
    layout: Layout,
    settings: ServerSettings,
    failed: Callable[[BaseException], None],
) -> tuple[Engine, CheckpointWriter]:
    """Return the engine as the last server left it, and a new checkpoint.

    The coordinator is a fresh one, as it was when the run began; the initial model may differ. ``failed`` is called if
    the disk fails.

    Raises:
        OffbeatError: The store is broken.
    """
    config = json.loads(json.dumps(settings.config))  # as the log has it
    check_config(store.folder, _run_state(store), config)
    delete_links(store.folder)
    replay = Replay(store, coordinator, layout)
    term = Term(store.log, secrets.token_hex(8), replay.number, replay.epoch)
    if store.shared is not None:
        await take_lead(store.log, term, replay, lambda: check_config(store.folder, replay.state.run, config))
    else:
        await lead_at_once(store.log, term, replay)
    coordinator.forget_presence()
    models, state = replay.models, replay.state
    if store.shared is not None and state.best is not None:
        await asyncio.to_thread(store.shared.download_model, state.best["version"], state.best["sha256"])
    run = LiveRun(
        coordinator,
        now=replay.now,
        stop_versions=settings.stop_versions,
        state=state.run,
        early_stop=settings.early_stop,
        clock=settings.clock,
        history=replay.run_history,
    )
    terms = settings.privacy and settings.privacy.terms
    shares = None if terms is None else MaskedShares(terms, coordinator, models, replay.history.keys)
    async with AsyncExitStack() as unless_started:
        life = None
        log_writer = LogWriter(term, store.disk, failed, 0.0 if store.shared is None else _PATIENCE_SECONDS)
        unless_started.push_async_callback(log_writer.close)
        if store.shared is not None:
            life = _begin_life(store.log, log_writer, failed)
            unless_started.callback(life.cancel)
        engine = Engine(run, log_writer, models, store.disk, replay.history, state, store.folder / "updates", shares)
        unless_started.push_async_callback(engine.close)
        engine.calls.update_files = replay.files
        engine.shared, engine.life = store.shared, life
        if settings.best_metric is not None:
            run.best = BestKeeper(settings.best_metric, state, models, log_writer, store.disk, store.shared)
        _take_config(engine, store, config)
        clean_up(store.folder, replay.files, settings.front_processes)
        if settings.client_evaluation is not None:
            _resume_evaluations(settings.client_evaluation, store, engine)
        checkpoints = CheckpointWriter(store, engine)
        try:
            await checkpoints.write()
        except UnreachableFilesError as error:
            if store.newest_shared_checkpoint() is None:
                raise
            # As while it leads: the last checkpoint still holds.
            event("blobs_unavailable", logging.WARNING, problem=str(error))
        for version in models.versions():
            models.digest(version)  # now, while nobody waits for it
        unless_started.pop_all()
    return engine, checkpoints


def _run_state(store: Store) -> RunState:
    state = RunState()
    for row in store.log.read_now(is_rare & (log.c.owner == RUN)):
        state.apply(row.name, row.values)
    return state


def _take_config(engine: Engine, store: Store, config: dict[str, Any]) -> None:
    """Begin the run, or let it go on if its file now has a later end."""
    state = engine.state.run
    if state.run_id is None:
        change = Change(RUN, "begin", {"run": store.log.run, "config": config})
    elif config != state.config:
        if engine.coordinator.algorithm.version >= state.stop_versions:
            # Before the row of the new end: a kill between them leaves nothing that this would not do again.
            engine.free_slots()
        change = Change(RUN, "configure", {"config": config})
    else:
        return
    state.apply(change.name, change.arguments)
    engine.log_writer.enter(change)


def _resume_evaluations(settings: ClientEvaluationSettings, store: Store, engine: Engine) -> None:
    run, visits = engine.run, engine.coordinator.visits
    evaluations = engine.publisher.client_evaluations = ClientEvaluations(
        settings,
        store.folder,
        store.log.read_now(is_rare & (log.c.owner == EVALUATIONS)),
        engine.log_writer,
        clients=engine.coordinator.clients,
        is_at_work=lambda client: visits.has_slot(client) and not run.is_finished,
        now=lambda: run.now,
        on_end=lambda summary: run.note_evaluation(summary.version, summary.columns()),
    )
    if not evaluations.needed_versions <= engine.models.versions() | run.needed_versions():
        evaluations.end()  # nobody had begun to train from the version, so it was not made again
