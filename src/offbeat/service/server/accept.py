"""The operator's consent to a log whose last rows may be missing."""

import asyncio
import json
import secrets

from offbeat_core.errors import OffbeatError

from offbeat.service.log.log import RUN, Row
from offbeat.service.log.place import OWNER, found, is_elsewhere, target_of
from offbeat.service.log.tables import is_rare, log
from offbeat.service.log.term import Term
from offbeat.service.store.server_state import RunState
from offbeat.service.store.shared_store import SharedStore, opened_shared
from offbeat.service.store_settings import StoreSettings


def accept(settings: StoreSettings) -> int:
    """Record the database that holds the log now; return the last row's number.

    Raises:
        OffbeatError: It is the same database as before, or the run is private.
    """
    with opened_shared(settings) as store:
        last = store.log.newest_now(OWNER)
        if target_of(last) is not None or not is_elsewhere(last, store.log.place):
            raise OffbeatError(f"{settings.log} is the database that it was: there is nothing to accept")
        _check_not_private(store)
        return asyncio.run(_accept(store))


async def _accept(store: SharedStore) -> int:
    number = store.log.last_number_now()
    term = Term(store.log, secrets.token_hex(8), number, await store.log.last_epoch())
    if not await term.lead():
        raise OffbeatError("a server has begun to lead this run: look at offbeat server status")
    change = found(store.log.place or {})
    row = Row(term.number + 1, term.epoch, change.owner, change.name, json.dumps(change.arguments))
    await term.append([row])
    return number


def _check_not_private(store: SharedStore) -> None:
    state = RunState()
    for row in store.log.read_now(is_rare & (log.c.owner == RUN)):
        state.apply(row.name, row.values)
    if "privacy" in state.config:
        raise OffbeatError(
            "this run is private, and the log may have forgotten sums that were opened, or participations: begin a new "
            "run from its last model, as the page on old copies says"
        )
