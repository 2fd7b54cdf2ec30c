"""The start of an engine: the last checkpoint, and the log's records after it."""

import secrets
from collections.abc import Callable
from contextlib import AsyncExitStack

from offbeat_core.errors import OffbeatError
from offbeat_private.masks.envelope import parse

from offbeat.coordinator import Coordinator
from offbeat.service.client_evaluation.client_evaluations import OWNER as EVALUATIONS
from offbeat.service.client_evaluation.client_evaluations import ClientEvaluations, ClientEvaluationSettings
from offbeat.service.engine.engine import Engine
from offbeat.service.engine.evaluation_queue import delete_links
from offbeat.service.engine.live_run import LiveRun
from offbeat.service.engine.server_checkpoint import CheckpointWriter, LoadedCheckpoint, load_checkpoint
from offbeat.service.masked.masked_shares import MaskedShares
from offbeat.service.server_settings import ServerSettings
from offbeat.service.store.call_records import call_of, vector_of
from offbeat.service.store.database import COORDINATOR, RUN, Change, LogRecord
from offbeat.service.store.disk import Disk
from offbeat.service.store.log_writer import LogWriter
from offbeat.service.store.model_files import Layout, ModelFiles
from offbeat.service.store.segments import Segments
from offbeat.service.store.server_state import RunState, check_config
from offbeat.service.store.store import Store
from offbeat.service.updates.update_body import StoredUpdate, check_body
from offbeat.service.updates.upload_history import norm_unit
from offbeat.service.updates.uploads import clean_up


async def open_engine(
    store: Store,
    coordinator: Coordinator,
    layout: Layout,
    settings: ServerSettings,
    failed: Callable[[BaseException], None],
) -> tuple[Engine, CheckpointWriter]:
    """Return the engine as the last server left it, and a new checkpoint.

    The calls after the last checkpoint are made again in the same order. So every version that a client has seen is
    reproduced bit for bit.

    The coordinator is a fresh one, as it was when the run began; the initial model may differ. ``failed`` is called if
    the disk fails.

    Raises:
        OffbeatError: The store is broken.
    """
    check_config(store.folder, _run_state(store), settings.config)
    models = ModelFiles(store.folder / "models", layout)
    loaded = load_checkpoint(store, coordinator)
    # A kill may have left other versions incomplete.
    models.keep(loaded.versions)
    models.discard_pending()
    delete_links(store.folder)
    number, now, updates = _replay(store, coordinator, models, loaded)
    state = loaded.state
    coordinator.forget_presence()
    disk = Disk(store.folder / "reserve", failed)
    run = LiveRun(
        coordinator,
        now=now,
        stop_versions=settings.stop_versions,
        state=state.run,
        early_stop=settings.early_stop,
        clock=settings.clock,
        history=loaded.run_history,
    )
    terms = settings.privacy and settings.privacy.terms
    shares = None if terms is None else MaskedShares(terms, coordinator, models, loaded.history.keys)
    async with AsyncExitStack() as unless_started:
        log_writer = LogWriter(store.database, number, disk, failed)
        unless_started.push_async_callback(log_writer.close)
        segments = Segments(store.folder / "updates")
        engine = Engine(run, log_writer, models, segments, disk, loaded.history, state, shares)
        unless_started.push_async_callback(engine.close)
        for record, update in updates:
            engine.calls.update_files.add(record, update)
        _take_config(engine, settings)
        clean_up(store.folder, {update.path.name for _, update in updates})
        if settings.client_evaluation is not None:
            _resume_evaluations(settings.client_evaluation, store, engine)
        checkpoints = CheckpointWriter(store.folder, engine)
        await checkpoints.write()
        for version in models.versions():
            models.digest(version)  # now, while nobody waits for it
        unless_started.pop_all()
    return engine, checkpoints


def _run_state(store: Store) -> RunState:
    state = RunState()
    for record in store.records_of(RUN):
        state.apply(record.name, record.arguments)
    return state


def _take_config(engine: Engine, settings: ServerSettings) -> None:
    """Begin the run, or let it go on if its file now has a later end."""
    state, config = engine.state.run, settings.config
    if state.run_id is None:
        change = Change(RUN, "begin", {"run": secrets.token_hex(8), "config": config})
    elif config != state.config:
        if engine.coordinator.algorithm.version >= state.stop_versions:
            # Before the record of the new end: a kill between them leaves nothing that this would not do again.
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
        store.records_of(EVALUATIONS),
        engine.log_writer,
        clients=engine.coordinator.clients,
        is_at_work=lambda client: visits.has_slot(client) and not run.is_finished,
        now=lambda: run.now,
        on_end=lambda summary: run.note_evaluation(summary.version, summary.columns()),
    )
    if not evaluations.needed_versions <= engine.models.versions() | run.needed_versions():
        evaluations.end()  # nobody had begun to train from the version, so it was not made again


def _replay(
    store: Store, coordinator: Coordinator, models: ModelFiles, loaded: LoadedCheckpoint
) -> tuple[int, float, list[tuple[int, StoredUpdate]]]:
    """Make the later calls again; return the last number and time, and updates."""
    number, now = loaded.number, loaded.now
    updates: list[tuple[int, StoredUpdate]] = []
    for record in store.records(number):
        if record.number != number + 1:
            raise OffbeatError(f"{store.database_path} is broken: its log has no record {number + 1}; restore a backup")
        try:
            update = _replay_record(record, store, coordinator, models, loaded)
        except (ValueError, LookupError, TypeError, AssertionError) as error:
            raise OffbeatError(
                f"{store.database_path} is broken: its log's record {record.number} does not follow from those before "
                f"it ({error}); restore a backup"
            ) from error
        if update is not None:
            updates.append((record.number, update))
        number, now = record.number, max(now, record.arguments.get("now", 0.0))
    return number, now, updates


def _replay_record(
    record: LogRecord, store: Store, coordinator: Coordinator, models: ModelFiles, loaded: LoadedCheckpoint
) -> StoredUpdate | None:
    """Make a change again; return its update or opened sum, if that is stored."""
    loaded.state.apply(record)
    if record.owner != COORDINATOR:
        return None
    algorithm = coordinator.algorithm
    call = call_of(record, coordinator, store.folder / "updates", models)
    if record.name == "assign":
        models.write(algorithm.version, algorithm.model, algorithm.down())
        models.publish(algorithm.version)
    if record.name != "receive":
        coordinator.replay(call)
        loaded.run_history.note(call, coordinator)
        opened = vector_of(call)
        return opened if isinstance(opened, StoredUpdate) else None
    client, visit = record.arguments["client"], record.arguments["visit"]
    assignment = coordinator.visits.assignment(client)
    assert assignment is not None
    coordinator.replay(call)
    loaded.run_history.note(call, coordinator)
    has_counted = coordinator.visits.has_counted(client, visit)
    loaded.history.digests.add(client, visit, record.digest or "", counted=has_counted)
    if (share := call.arguments.get("share")) is not None:
        loaded.history.keys.add(client, parse(share).binding.client)
    update = call.arguments["vector"]
    if not isinstance(update, StoredUpdate):
        return None
    if has_counted and coordinator.participation is None:
        steps, reported = record.arguments["steps"], record.arguments["normaliser"]
        unit = norm_unit(algorithm.payload, assignment.plan, steps, reported)
        loaded.history.norms.add(client, check_body(update, None) / unit)
    return update
